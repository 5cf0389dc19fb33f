"""The mover: pushes staged messages, which programs enqueued in their own transactions. Every broker runs it.

Each step is one transaction that pushes messages and deletes them from the staged ones. Brokers share the work by
buckets: the transaction that reads a bucket holds it until it ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from fairlane.broker.push import Announcer
from fairlane.broker.staged_move import MoveParts, StagedMove
from fairlane.errors import FairlaneError, ShuttingDown, Unavailable
from fairlane.runtime.service import Service
from fairlane.store.families.staged import Move, StagedBucket, StagedMessage, Waiting

_STEP = 2000
"""Messages moved in one transaction."""
_BUSY_SECONDS = 0.02
"""Pause between checks while a role may enqueue, or messages were staged lately."""
_IDLE_SECONDS = 0.1
_LATELY_SECONDS = 60.0
_WAIT_SECONDS = 0.02, 0.5
"""First and longest time after which a full queue or a locked partition is tried again. Doubled while nothing fits."""
_CHECK_SHARE = 3
"""Multiple of the time of a check to pause after it. Checks are slow while another session keeps old rows alive."""
_PAUSE_SECONDS_MAX = 1.0
_AWAY_SECONDS = 2.0

log = logging.getLogger(__name__)


class StagedMover(Service):
    def __init__(self, parts: MoveParts, announcer: Announcer) -> None:
        super().__init__("mover")
        self.moved = 0
        self._parts = parts
        self._store = parts.store
        self._announcer = announcer
        self._after = StagedBucket()
        self._waiting: dict[Waiting, float] = {}
        """Times until which queues and partitions wait."""
        self._waits: dict[Waiting, float] = {}
        """Seconds for which each queue or partition waits."""
        self._check_seconds = 0.0
        self._warned: dict[Waiting, str] = {}
        self._moved_at = -_LATELY_SECONDS
        self._granted = self._blocked = False
        self._sealed: tuple[str, ...] | None = None

    async def _run(self) -> None:
        away = False
        while not self._stopping and self._store.staged.supported:
            try:
                await self._publish_sealed()
                while not self._stopping and await self.move():
                    pass
                away = False
            except ShuttingDown:
                return
            except FairlaneError as error:
                if not away and not isinstance(error, Unavailable):  # an outage is logged once for all services
                    log.warning("cannot move staged messages, retrying: %(error)s", {"error": error})
                away = True
            await self._rest(_AWAY_SECONDS if away else self._pause())

    def _pause(self) -> float:
        """Return the seconds until the next check."""
        now = time.monotonic()
        lately = self._granted or now - self._moved_at < _LATELY_SECONDS
        pause = _BUSY_SECONDS if lately and not self._blocked else _IDLE_SECONDS
        if self._waiting:
            pause = min(pause, max(_BUSY_SECONDS, min(self._waiting.values()) - now))
        return max(pause, min(_PAUSE_SECONDS_MAX, _CHECK_SHARE * self._check_seconds))

    async def move(self) -> bool:
        """Move some messages. Returns True if there may be more to do at once."""
        now = time.monotonic()
        self._waiting = {what: until for what, until in self._waiting.items() if until > now}
        found = await self._store.staged.check()
        self._check_seconds = time.monotonic() - now
        self._granted, self._blocked = found.granted, False
        if not found.waiting:
            return False
        step: StagedMove | None = None
        rows: list[StagedMessage] = []

        async def work(move: Move) -> Collection[StagedMessage]:
            nonlocal step, rows
            step = StagedMove(self._parts, move)
            self._after = move.messages[-1].whole_bucket
            rows = await step.run()
            return rows

        waiting = list(self._waiting)
        moved = await self._store.staged.move(work, after=self._after, waiting=waiting, limit=_STEP)
        self._blocked = step is None
        if step is None:  # all of them wait, or another broker moves them
            return False
        self._announce(step, moved)
        self._wait(step, {Waiting(row.tenant_id, row.queue) for row in rows})
        return bool(moved or step.waiting)

    def _announce(self, step: StagedMove, moved: int) -> None:
        """Wake polls for the moved messages."""
        self.moved += moved
        if moved:
            self._moved_at = time.monotonic()
        for queue_id, lanes in step.stored.items():
            self._announcer.appended(queue_id, sum(lanes), lanes=len(lanes))
        if step.has_scheduled:
            self._parts.scheduler.wake()

    def _wait(self, step: StagedMove, moved: Collection[Waiting]) -> None:
        """Note which queues and partitions must wait. Queues that took something are tried again soon."""
        now, (shortest, longest) = time.monotonic(), _WAIT_SECONDS
        for what, why in step.waiting.items():
            known = None if what in moved else self._waits.get(what)
            self._waits[what] = shortest if known is None else min(2 * known, longest)
            self._waiting[what] = now + self._waits[what]
            if self._warned.get(what) != why.partition(":")[0]:
                if len(self._warned) > 1000:
                    self._warned.clear()
                self._warned[what] = why.partition(":")[0]
                log.warning("staged messages of queue %(queue)r wait: %(error)s", {"queue": what.queue, "error": why})
        self._waits = {what: self._waits[what] for what in self._waiting}

    async def _publish_sealed(self) -> None:
        """Store the patterns of queues that are always encrypted, so that nothing is staged for them."""
        if self._sealed != self._store.codec.always:
            await self._store.staged.publish_sealed(self._store.codec.always)
            self._sealed = self._store.codec.always
