"""The lease keeper: renews leases while their messages are handled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import NamedTuple

from fairlane.client.leases import Leases
from fairlane.errors import FairlaneError

RENEW_SECONDS_MAX = 30.0
_NEVER = float("inf")

log = logging.getLogger("fairlane.client")


class _Renewal(NamedTuple):
    seconds: int
    due_at: float

    @property
    def beat(self) -> float:
        """A lease is renewed after two of them, or after one if another is renewed then."""
        return min(self.seconds / 8, RENEW_SECONDS_MAX / 2)


class Keeper:
    """One heartbeat for all leases of a consumer: each is renewed well before half its time has passed, for as long as
    it was given.

    `ended` is called for a lease that went to somebody else, while it is kept alive."""

    def __init__(self, verbs: Leases, ended: Callable[[str], None] | None = None) -> None:
        self._verbs = verbs
        self._ended = ended
        self._renewals: dict[str, _Renewal] = {}
        self._lost: set[str] = set()
        self._wakes_at = _NEVER
        self._earlier = asyncio.Event()

    def hold(self, lease: str, seconds: int) -> None:
        self._wait(lease, seconds, beats=2)

    def lose(self, lease: str) -> None:
        """It went to somebody else: work under it is in vain."""
        if self._renewals.pop(lease, None) is not None:
            self._lost.add(lease)
            if self._ended is not None:
                self._ended(lease)

    def lost(self, lease: str) -> bool:
        return lease in self._lost

    def let_go(self, lease: str) -> None:
        self._renewals.pop(lease, None)
        self._lost.discard(lease)

    async def run(self) -> None:
        while True:
            await self._sleep()
            now = asyncio.get_running_loop().time()
            due = [
                (lease, renewal) for lease, renewal in self._renewals.items() if renewal.due_at - renewal.beat <= now
            ]
            await asyncio.gather(*[self._renew(lease, renewal.seconds) for lease, renewal in due])

    async def _sleep(self) -> None:
        """Until a lease is due."""
        self._wakes_at = min((renewal.due_at for renewal in self._renewals.values()), default=_NEVER)
        self._earlier.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._wakes_at if self._renewals else None):
                await self._earlier.wait()

    def _wait(self, lease: str, seconds: int, *, beats: int) -> None:
        renewal = _Renewal(seconds, 0.0)
        due_at = asyncio.get_running_loop().time() + beats * renewal.beat
        self._renewals[lease] = renewal._replace(due_at=due_at)
        if due_at < self._wakes_at:
            self._wakes_at = due_at
            self._earlier.set()

    async def _renew(self, lease: str, seconds: int) -> None:
        try:
            outcome = await self._verbs.renew(lease, seconds)
        except FairlaneError as error:
            log.warning("cannot renew lease %s: %s", lease, error)
            if lease in self._renewals:
                self._wait(lease, seconds, beats=1)
            return
        if lease not in self._renewals:
            return  # its messages were finished meanwhile
        if outcome.renewed:
            self.hold(lease, seconds)
        else:
            log.warning("lost lease %s while its messages were handled; they are delivered again", lease)
            self.lose(lease)
