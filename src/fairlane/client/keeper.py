"""Keeps leases alive while their messages are handled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fairlane.client.leases import Leases
from fairlane.errors import FairlaneError

RENEW_SECONDS_MAX = 30.0

log = logging.getLogger("fairlane.client")


class Keeper:
    """One heartbeat for all leases of a consumer: each is renewed well before half its time has passed.

    `ended` is called for a lease that went to somebody else, while it is held."""

    def __init__(self, verbs: Leases, lease_seconds: int, ended: Callable[[str], None] | None = None) -> None:
        self._verbs = verbs
        self._lease_seconds = lease_seconds
        self._ended = ended
        self._beat = min(lease_seconds / 8, RENEW_SECONDS_MAX / 2)
        self._due: dict[str, float] = {}
        self._lost: set[str] = set()

    def hold(self, lease: str) -> None:
        self._due[lease] = asyncio.get_running_loop().time() + 2 * self._beat

    def lose(self, lease: str) -> None:
        """It went to somebody else: work under it is in vain."""
        if self._due.pop(lease, None) is not None:
            self._lost.add(lease)
            if self._ended is not None:
                self._ended(lease)

    def lost(self, lease: str) -> bool:
        return lease in self._lost

    def let_go(self, lease: str) -> None:
        self._due.pop(lease, None)
        self._lost.discard(lease)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._beat)
            now = asyncio.get_running_loop().time()
            await asyncio.gather(*[self._renew(lease) for lease, due_at in self._due.items() if due_at <= now])

    async def _renew(self, lease: str) -> None:
        try:
            outcome = await self._verbs.renew(lease, self._lease_seconds)
        except FairlaneError as error:
            log.warning("cannot renew lease %s: %s", lease, error)
            return  # due still: the next beat tries again
        if lease not in self._due:
            return  # its messages were finished meanwhile
        if outcome.renewed:
            self.hold(lease)
        else:
            log.warning("lease %s ended while its messages were handled; they are delivered again", lease)
            self.lose(lease)
