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
        self.on: set[str] | None = None
        self.look_at = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def is_on(self, name: str) -> bool:
        """As of the last look, which is a second or two old at most; the first look is waited for."""
        if self.on is None:
            self.on = await self._store.flags.on()
            self.look_at = time.monotonic() + _LOOK_SECONDS
        elif time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + _LOOK_SECONDS
            self._looking = asyncio.create_task(self._look(), name="fairlane flags")
        return name in self.on

    def seen(self, name: str) -> bool:
        """As of the last look, without waiting for one."""
        if time.monotonic() >= self.look_at and (self._looking is None or self._looking.done()):
            self.look_at = time.monotonic() + _LOOK_SECONDS
            self._looking = asyncio.create_task(self._look(), name="fairlane flags")
        return self.on is not None and name in self.on

    async def turn(self, name: str, on: bool) -> None:
        await self._store.flags.turn(name, on)
        self.on = await self._store.flags.on()

    async def _look(self) -> None:
        try:
            self.on = await self._store.flags.on()
        except FairlaneError as error:
            log.warning("cannot read the flags now, they stay as they were: %s", error)

    async def stop(self) -> None:
        if self._looking is not None:
            await asyncio.wait([self._looking])
