"""Flags that operators set for all brokers of a store. Each broker refreshes them every second while it uses them."""

from __future__ import annotations

import asyncio
import logging
import time

from fairlane.errors import FairlaneError
from fairlane.runtime.read_order import ReadOrder
from fairlane.store.contract.store import Store

POPS_PAUSED = "pops_paused"
PUSHES_PAUSED = "pushes_paused"
"""While set, brokers keep pushes in their journals."""
_FRESH_SECONDS = 1.0

log = logging.getLogger(__name__)


class Flags:
    """The flags of the store, cached."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.on: set[str] = set()
        """Names of the flags that are set."""
        self._reads = ReadOrder()
        self._loaded = False
        self.fresh_until = 0.0
        """Time until which the cache is used without a refresh."""
        self._refreshing: asyncio.Task[None] | None = None

    async def is_on(self, name: str) -> bool:
        """Return True if the flag is set.

        The answer is at most two seconds old; only the first call waits for the store.
        """
        if not self._loaded:
            await self.refresh()
        else:
            self.refresh_soon()
        return name in self.on

    def refresh_soon(self) -> None:
        """Refresh the cache in the background if it is a second old."""
        if time.monotonic() >= self.fresh_until and (self._refreshing is None or self._refreshing.done()):
            self.fresh_until = time.monotonic() + _FRESH_SECONDS
            self._refreshing = asyncio.create_task(self._refresh_again(), name="fairlane flags")

    async def set(self, name: str, on: bool) -> None:
        await self._store.flags.set(name, on)
        await self.refresh()

    async def refresh(self) -> None:
        """Read the flags. The result of an earlier read is ignored once a later one was loaded."""
        number = self._reads.start()
        enabled = await self._store.flags.enabled()
        if not self._reads.may_load(number):
            return
        self.on = enabled
        self._loaded = True
        self.fresh_until = time.monotonic() + _FRESH_SECONDS

    async def _refresh_again(self) -> None:
        try:
            await self.refresh()
        except FairlaneError as error:
            log.warning("cannot read the flags, keeping the last known ones: %(error)s", {"error": error})

    async def stop(self) -> None:
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])
