"""Flags: what operators turned on for all brokers of a store. Each looks again every second while it is asked."""

from __future__ import annotations

import asyncio
import logging
import time

from fairlane.errors import FairlaneError
from fairlane.store.contract.store import Store

POP_MAINTENANCE = "pop_maintenance"
PUSH_MAINTENANCE = "push_maintenance"
"""Pushes go to the journals of their brokers, and stay there."""
_LOOK_SECONDS = 1.0

log = logging.getLogger(__name__)


class Flags:
    """The flags of the store as this broker saw them last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.on: set[str] = set()
        """Those that were on at the last look."""
        self._looked = False
        self.look_at = 0.0
        """Until then they are trusted."""
        self._looking: asyncio.Task[None] | None = None

    async def is_on(self, name: str) -> bool:
        """As of the last look, which is a second or two old at most; the first look is waited for."""
        if not self._looked:
            await self.look()
        else:
            self.look_soon()
        return name in self.on

    def look_soon(self) -> None:
        """Look again if the last look is a second old, without waiting for it."""
        if time.monotonic() >= self.look_at and (self._looking is None or self._looking.done()):
            self.look_at = time.monotonic() + _LOOK_SECONDS
            self._looking = asyncio.create_task(self._look_again(), name="fairlane flags")

    async def turn(self, name: str, on: bool) -> None:
        await self._store.flags.turn(name, on)
        await self.look()

    async def look(self) -> None:
        self.on = await self._store.flags.on()
        self._looked = True
        self.look_at = time.monotonic() + _LOOK_SECONDS

    async def _look_again(self) -> None:
        try:
            await self.look()
        except FairlaneError as error:
            log.warning("cannot read the flags now, they stay as they were: %(error)s", {"error": error})

    async def stop(self) -> None:
        if self._looking is not None:
            await asyncio.wait([self._looking])
