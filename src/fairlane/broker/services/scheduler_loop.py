"""The scheduler loop: appends due scheduled messages, pushes ticks of schedules, and expires unread messages.

Every broker runs it, without a leader: each step is small, atomic, and skips work that another broker is doing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time

from fairlane.broker.push import Announcer
from fairlane.broker.schedules import Ticks
from fairlane.errors import FairlaneError, ShuttingDown
from fairlane.runtime.service import Service
from fairlane.store.contract.store import Store
from fairlane.telemetry import Telemetry

_APPEND_STEP = 1000
"""Messages appended in one transaction, so that it is short and uses little memory."""
_FLOOR_SECONDS = 2.0
"""Longest pause: another broker may have scheduled something and died."""
_BUSY_SECONDS = 0.05
_TICK_SECONDS = 0.25
_AWAY_SECONDS = 2.0
_EXPIRY_SECONDS = 30.0
_EXPIRY_STEPS_MAX = 1000

log = logging.getLogger(__name__)


class SchedulerLoop(Service):
    def __init__(
        self, store: Store, announcer: Announcer, ticks: Ticks, telemetry: Telemetry, news: asyncio.Event
    ) -> None:
        super().__init__("scheduler", news)
        self._store = store
        self._telemetry = telemetry
        self._announcer = announcer
        self._expire_at = time.monotonic() + _EXPIRY_SECONDS * random.random()  # noqa: S311  # not all at once
        self.appended = self.expired = 0
        self._ticks = ticks

    async def _run(self) -> None:
        away = False
        while not self._stopping:
            try:
                pause = min(await self.append_scheduled(), await self.tick())
                if time.monotonic() >= self._expire_at:
                    await self.expire()
                away = False
            except ShuttingDown:
                return
            except FairlaneError as error:
                if not away:
                    log.warning(
                        "cannot deliver scheduled messages, the store does not answer: %(error)s", {"error": error}
                    )
                away, pause = True, _AWAY_SECONDS
            await self._rest(pause)

    async def append_scheduled(self) -> float:
        """Append all messages that are due. Returns the seconds until the next one is."""
        while not self._stopping:
            due_in = await self._store.scheduled.next_in()
            if due_in is None:
                return _FLOOR_SECONDS
            if due_in > 0:
                return min(_FLOOR_SECONDS, max(0.001, due_in / 1e6))
            appended = await self._store.scheduled.append_due(limit=_APPEND_STEP)
            for queue_id, count in appended.queues.items():
                self.appended += count
                self._announcer.appended(queue_id, count)
            if not appended.count:
                return _BUSY_SECONDS  # another broker is doing it
        return _FLOOR_SECONDS

    async def tick(self) -> float:
        """Push the ticks of schedules that are due. Returns the seconds until the next one is."""
        while not self._stopping:
            due_in = await self._store.schedules.next_in()
            if due_in is None:
                return _FLOOR_SECONDS
            if due_in > 0:
                return min(_FLOOR_SECONDS, max(0.001, due_in / 1e6))
            if not await self._ticks.push_due():
                return _TICK_SECONDS  # another broker is doing it, or the queue of a schedule refuses messages now
        return _FLOOR_SECONDS

    async def expire(self) -> None:
        """Expire messages in lanes that nobody reads."""
        self._expire_at = time.monotonic() + _EXPIRY_SECONDS
        for queue_id, group_id in await self._store.messages.expiring():
            for _ in range(_EXPIRY_STEPS_MAX):
                gone = await self._store.messages.expire(queue_id, group_id)
                self.expired += gone
                self._telemetry.queue(queue_id).expired += gone
                if not gone or self._stopping:
                    break
