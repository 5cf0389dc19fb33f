"""The history recorder: writes what each process counted and how full the queues are to the store, once a minute.

Every process writes its own counts. One broker of a store leads, and also measures depth, age and lag every ten
seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time

from fairlane.broker.statistics import Statistics
from fairlane.counts import Minute, QueueCounts
from fairlane.errors import FairlaneError
from fairlane.model.history import (
    EVERYTHING,
    HISTORY,
    KEEP_MINUTES,
    SUBJECTS_MAX,
    MinuteSample,
    Subject,
    of_group,
    of_queue,
)
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.service import Service
from fairlane.store.contract.store import Store
from fairlane.telemetry import Telemetry

SAMPLE_SECONDS = 10.0
LEAD_SECONDS = 90
"""Time after which a dead leader is replaced. A leader renews its lead every minute."""
_SHARE = 50
"""Pause after a measurement, as a multiple of its duration: it uses at most a fiftieth of a connection."""
_STOP_SECONDS = 2.0
_MINUTE = 60_000_000
_PACK_STEPS = 1000
_WAITING_MAX = 100_000
"""Samples that wait for a store that is unavailable."""

log = logging.getLogger(__name__)


class HistoryRecorder(Service):
    def __init__(self, store: Store, telemetry: Telemetry, statistics: Statistics) -> None:
        super().__init__("history")
        self._store = store
        self._telemetry = telemetry
        self._statistics = statistics
        self._writer = secrets.randbits(62)
        self._token: int | None = None
        self._counted_since = telemetry.started_at - telemetry.started_at % _MINUTE
        self._waiting: dict[tuple[Subject, int], MinuteSample] = {}
        """Samples that are not written yet."""
        self._written_at = 0
        self._packed_hour = 0

    async def _run(self) -> None:
        pause = SAMPLE_SECONDS * random.uniform(0.5, 1)  # noqa: S311  # not all brokers at once
        while not self._stopping:
            await self._rest(pause)
            began = time.monotonic()
            if not self._stopping:
                with contextlib.suppress(FairlaneError):  # the store is unavailable, which others report
                    await self.record()
            pause = max(SAMPLE_SECONDS, _SHARE * (time.monotonic() - began))
        with contextlib.suppress(FairlaneError, TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self.finish()

    async def record(self) -> None:
        """Measure the queues if this broker leads, and write the minutes that are over."""
        now = wall_clock()
        self._telemetry.note_measuring(self._token is not None)
        if self._token is not None:
            await self._measure(now)
        minute = now // _MINUTE
        if minute == self._written_at:
            return
        self._collect(self._telemetry.closed(self._counted_since))
        await self._lead()
        await self._write(minute)
        self._written_at = minute
        if self._token is not None and minute // 60 != self._packed_hour:
            await self._pack(minute)
            self._packed_hour = minute // 60

    async def finish(self) -> None:
        """Write everything, also of the current minute, and let another broker lead."""
        self._collect([*self._telemetry.closed(self._counted_since), self._telemetry.running()])
        await self._write(2**31 - 1)
        if self._token is not None:
            await self._store.leadership.release(HISTORY, self._token, seconds=0)

    async def _lead(self) -> None:
        leadership, token = self._store.leadership, self._token
        if token is None or not await leadership.keep(HISTORY, token, seconds=LEAD_SECONDS):
            self._token = await leadership.lead(HISTORY, seconds=LEAD_SECONDS)

    async def _measure(self, now: int) -> None:
        """Note the depth of the queues and the lag of the groups."""
        counted, groups = await self._statistics.queues(), [one for _, one in await self._statistics.groups()]
        oldest, at = await self._statistics.oldest(counted, groups), await self._store.now()
        found = [(of_queue(queue.id), one.unfinished, oldest.get(queue.id)) for queue, one in counted]
        lags = [(of_group(one.group_id), one.lag, one.oldest_at) for one in groups]
        ages = [oldest_at for _, depth, oldest_at in found if depth and oldest_at is not None]
        everything = (EVERYTHING, sum(depth for _, depth, _ in found), min(ages, default=None))
        for subject, depth, oldest_at in (everything, *_deepest(found), *_deepest(lags)):
            sample = self._sample(subject, now // _MINUTE)
            sample.depth = depth
            sample.oldest_ms = None if oldest_at is None else max(0, at - oldest_at) // 1000

    def _collect(self, minutes: list[Minute]) -> None:
        """Add the counts of this process."""
        for minute in minutes:
            at = minute.at // _MINUTE
            for queue_id, counts in minute.queues.items():
                _add(self._sample(of_queue(queue_id), at), counts)
            if minute.step is not None and any(minute.step.counts):
                pushed, popped, acked, failed, dead = minute.step.counts
                latencies = [None if one is None else int(one * 1e6) for one in minute.step.latencies]
                every = MinuteSample(pushed, popped, acked, failed, dead, latencies_us=latencies)
                for counts in minute.queues.values():
                    every.add(_waits(counts))
                self._sample(EVERYTHING, at).add(every)
            self._counted_since = minute.at + _MINUTE
        for key in list(self._waiting)[:-_WAITING_MAX]:
            del self._waiting[key]

    async def _write(self, before: int) -> None:
        """Write the samples of minutes before `before`. They stay here if the store is unavailable."""
        some = {key: sample for key, sample in self._waiting.items() if key[1] < before}
        if some:
            await self._store.history.add(self._writer, some)
            for key in some:
                self._waiting.pop(key, None)

    async def _pack(self, minute: int) -> None:
        for _ in range(_PACK_STEPS):
            if self._stopping or not await self._store.history.pack(minute):
                break
        await self._store.history.forget(minute - KEEP_MINUTES)

    def _sample(self, subject: Subject, minute: int) -> MinuteSample:
        return self._waiting.setdefault((subject, minute), MinuteSample())


def _add(sample: MinuteSample, counts: QueueCounts) -> None:
    more = MinuteSample(counts.pushed, counts.popped, counts.acks, counts.failed, counts.dead, counts.expired)
    sample.add(more)
    sample.add(_waits(counts))


def _waits(counts: QueueCounts) -> MinuteSample:
    """Return the time in the queue of what was popped."""
    reads = counts.pops - counts.pops_empty
    return MinuteSample(reads=reads, wait_ms=int(counts.lag_ms), wait_max_ms=int(counts.lag_max_ms))


def _deepest(found: list[tuple[Subject, int, int | None]]) -> list[tuple[Subject, int, int | None]]:
    """Return the subjects with messages, at most the largest thousand."""
    some = [one for one in found if one[1]]
    return some if len(some) <= SUBJECTS_MAX else sorted(some, key=lambda one: -one[1])[:SUBJECTS_MAX]
