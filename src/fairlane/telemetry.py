"""Telemetry: counters of the broker's work since it started. They are kept in memory, and `http` exposes them.

Recording must cost less than a microsecond per request. It only adds to plain numbers; percentiles and series are
computed when they are read.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import sub
from typing import Final, TypeVar

import msgspec

from fairlane.counts import Bin, Minute, QueueCounts, Step, Tally
from fairlane.queue_counters import QueueCounters, QueueTotals
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.process import cpu_seconds, resident_bytes
from fairlane.tenant_counters import TenantCounters

T = TypeVar("T")
KINDS: Final = ("push", "pop", "ack", "transaction", "renew_lease")
MINUTES_MAX: Final = 24 * 60
CLOSED_MAX: Final = 60
"""Minutes with all their queues that wait for the recorder of the history."""
QUEUES_MAX: Final = 200  # queues of each minute that are kept for a day; the rest is only in the totals
SECONDS_MAX: Final = 300
BIN_SECONDS: Final = 5
BINS_MAX: Final = SECONDS_MAX // BIN_SECONDS
BIN_QUEUES_MAX: Final = 1000
COUNTED: Final = ("pushed", "popped", "acks", "failed", "dead")
CLOCKED: Final = ("push", "pop", "ack")
_SHARES: Final = (0.5, 0.99)
_BIN: Final = BIN_SECONDS * 1_000_000
_MINUTE: Final = 60_000_000
_STEPS: Final = 4  # buckets per doubling of the latency, so that a percentile is accurate within a fifth
_OCTAVES: Final = 40


class VerbStats(msgspec.Struct):
    """Counts of one verb: calls, items and latencies. Errors are not part of the latencies."""

    count: int = 0
    items: int = 0
    errors: int = 0
    seconds: float = 0.0
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * (_STEPS * _OCTAVES))

    def record(self, seconds: float, items: int) -> None:
        self.count += 1
        self.items += items
        self.seconds += seconds
        micros = int(seconds * 1e6)
        bits = micros.bit_length()
        self.buckets[(bits - 2) * _STEPS + (micros >> bits - 3 & 3) if bits > 2 else micros] += 1

    def mean_ms(self) -> float:
        return self.seconds / self.count * 1e3 if self.count else 0.0

    def percentile_ms(self, share: float) -> float:
        """Return the latency that `share` of the calls did not exceed, within the accuracy of the buckets."""
        return percentile(self.buckets, share) * 1e3

    def histogram(self, first: int = 5, upto: int = 25) -> Iterator[tuple[float, int]]:
        """Yield (seconds, number of calls that took at most this long), one per doubling. Default: 128 us to 67 s."""
        seen = sum(self.buckets[: first * _STEPS])
        for octave in range(first, upto):
            seen += sum(self.buckets[octave * _STEPS : (octave + 1) * _STEPS])
            yield upper_bound(octave * _STEPS + _STEPS - 1), seen


def percentile(buckets: Sequence[int], share: float) -> float:
    """Return the latency in seconds that `share` of the counted calls did not exceed. 0 if there are none."""
    wanted, seen = share * sum(buckets), 0
    for index, found in enumerate(buckets):
        seen += found
        if found and seen >= wanted:
            return upper_bound(index)
    return 0.0


def upper_bound(bucket: int) -> float:
    """Return the latency in seconds that all calls of a bucket stay below."""
    octave, step = divmod(bucket, _STEPS)
    return (bucket + 1 if octave == 0 else (_STEPS + step + 1) << octave - 1) / 1e6


class CommandCounts(msgspec.Struct):
    """Counts of one command by outcome, and the latencies of completed runs."""

    done: VerbStats = msgspec.field(default_factory=VerbStats)
    failed: int = 0
    dead: int = 0

    def record(self, status: str, seconds: float) -> None:
        """Record a run. `status` is the status of its ack."""
        if status == "completed":
            self.done.record(seconds, 1)
        elif status == "dlq":
            self.dead += 1
        elif status == "failed":
            self.failed += 1


class _Meter:
    """A meter of all events from now on, over all queues."""

    def __init__(self, telemetry: Telemetry, at: int) -> None:
        self.at = at
        self._telemetry = telemetry
        self._counts = telemetry.counts()
        self._buckets = [telemetry.verbs[kind].buckets[:] for kind in CLOCKED]
        self.depth: int | None = None
        self.oldest_at: int | None = None

    def step(self) -> Step:
        latencies: list[float | None] = []
        for kind, before in zip(CLOCKED, self._buckets, strict=True):
            now = self._telemetry.verbs[kind].buckets
            came = list(map(sub, now, before)) if now != before else []
            latencies += [percentile(came, share) or None for share in _SHARES]
        counts = tuple(map(sub, self._telemetry.counts(), self._counts))
        return Step(self.at, counts, tuple(latencies), self.depth, self.oldest_at)


class Telemetry:
    """Telemetry of a broker.

    Callers use `record` and `failed` at the end of each call, and `queue` wherever messages pass.
    """

    def __init__(self) -> None:
        self.started_at = wall_clock()
        self.verbs = {kind: VerbStats() for kind in KINDS}
        self.push, self.pop, self.ack, self.transaction, self.renew_lease = self.verbs.values()
        self.commands: dict[str, CommandCounts] = {}
        """Counts of the commands that this broker runs, by name."""
        self.webhooks: Counter[tuple[str, str]] = Counter()
        """Webhook requests by name and outcome. Requests to unknown webhooks have an empty name."""
        self.time_in_queue = VerbStats()
        """Age of the first message of each pop."""
        self.redelivered = self.leases_lost = self.dead = 0
        """Redelivered messages, expired leases that pops found, and dead letters."""
        self.deleted = self.deleted_unread = 0
        """Messages that retention deleted, and the number of them that some group had not finished."""
        self._measured = False
        self._seconds: deque[Step] = deque(maxlen=SECONDS_MAX)
        self._bins: deque[Bin] = deque(maxlen=BINS_MAX)
        self._minutes: deque[Minute] = deque(maxlen=MINUTES_MAX)
        self._closed: deque[Minute] = deque(maxlen=CLOSED_MAX)
        self._beyond = QueueCounts()
        self.counters = QueueCounters()
        self.tenants = TenantCounters()
        self._counts = (0,) * len(COUNTED)
        """Counts of all queues in past bins."""
        self._rotate_at = 0.0
        """When the current second ends. A call compares the time with this alone."""
        at = self._begin_second(time.perf_counter())
        self._queues: dict[int, QueueCounts] = {}
        self._bin = Bin(at - at % _BIN, self._queues, {}, {})
        self._second = _Meter(self, at)
        self._minute = self._begin_minute(at)

    def record(self, verb: VerbStats, began: float, items: int) -> None:
        """Record a finished call with `items` items that began at `began` (`time.perf_counter`)."""
        now = time.perf_counter()
        if now >= self._rotate_at:
            self._rotate(now)
        verb.record(now - began, items)

    def record_pop(self, queue_id: int, began: float, items: int, redelivered: int, lag_seconds: float) -> None:
        """Record a finished pop. `lag_seconds` is the age of its first message."""
        self.record(self.pop, began, items)
        counts = self.queue(queue_id)
        counts.pops += 1
        if not items:
            counts.pops_empty += 1
            return
        counts.popped += items
        self.redelivered += redelivered
        lag_ms = lag_seconds * 1000
        counts.lag_ms += lag_ms
        counts.lag_max_ms = max(counts.lag_max_ms, lag_ms)
        self.time_in_queue.record(lag_seconds, items)
        age = (int(lag_ms).bit_length() + 1) // 2
        counts.ages[age] = counts.ages.get(age, 0) + 1

    async def measure(self, verb: VerbStats, items: int, work: Awaitable[T]) -> T:
        """Await `work` and record it. An exception counts as an error and is raised."""
        began = time.perf_counter()
        try:
            outcome = await work
        except Exception:  # counted, then raised
            verb.errors += 1
            raise
        self.record(verb, began, items)
        return outcome

    def queue(self, queue_id: int) -> QueueCounts:
        """Return the counts of a queue in the current bin."""
        now = time.perf_counter()
        if now >= self._rotate_at:
            self._rotate(now)
        queues = self._queues
        counts = queues.get(queue_id)
        if counts is None:
            if len(queues) >= BIN_QUEUES_MAX:
                return self._beyond
            counts = queues[queue_id] = QueueCounts()
        return counts

    def record_dead_letters(self, queue_id: int, messages: int) -> None:
        """Count messages of a queue that became dead letters."""
        self.queue(queue_id).dead += messages
        self.dead += messages

    def totals(self) -> tuple[dict[int, QueueTotals], QueueTotals]:
        """Return the totals since the start by queue, and the totals of all queues without separate counters."""
        return self.counters.snapshot(self._queues, self._beyond)

    def command(self, name: str) -> CommandCounts:
        return self.commands.setdefault(name, CommandCounts())

    def minutes(self, since: int, until: int) -> list[Minute]:
        """Return the minutes that began between `since` and `until`, oldest first. The last may be incomplete."""
        running = self.running()
        return [minute for minute in (*self._minutes, running) if since <= minute.at <= until]

    def closed(self, since: int) -> list[Minute]:
        """Return the recent minutes that are over and began at `since` or later, with up to 1,000 queues each."""
        self._catch_up()
        return [minute for minute in self._closed if minute.at >= since]

    def running(self) -> Minute:
        """Return a copy of the current minute."""
        self._catch_up()
        running = msgspec.structs.replace(self._minute, queues=dict(self._minute.queues), verbs={})
        self._fold(running, copied=True)
        self._close(running)
        return running

    def seconds(self) -> list[Step]:
        """Return the recent seconds with activity, oldest first, without the current one."""
        self._catch_up()
        return list(self._seconds)

    def bins(self) -> list[Bin]:
        """Return the recent bins with activity, oldest first, without the current one."""
        self._catch_up()
        return list(self._bins)

    @property
    def bin_at(self) -> int:
        """Start of the current bin."""
        self._catch_up()
        return self._bin.at

    def active_queues(self, since: int) -> dict[int, int]:
        """Return the queues with activity in the bins since `since`, each with its last bin."""
        self._catch_up()
        return {id: bin.at for bin in (*self._bins, self._bin) if bin.at >= since for id in bin.queues}

    def note_measuring(self, measured: bool) -> None:
        """Note whether this process measures the queues of all tenants every few seconds."""
        self._measured = measured

    @property
    def measures_depths(self) -> bool:
        """True while this process measures the queues of all tenants every few seconds."""
        return self._measured

    def record_depths(self, depths: Mapping[int, int], *, whole: bool) -> None:
        """Record the unfinished messages by queue. `whole` means that `depths` has all queues."""
        self._catch_up()
        if whole:
            self._second.depth = sum(depths.values())
        self._bin.depths.update(islice(depths.items(), BIN_QUEUES_MAX))

    def record_lags(self, lags: Iterable[tuple[int, int]]) -> None:
        """Record the unfinished messages by group."""
        self._catch_up()
        self._bin.lags.update(islice(lags, BIN_QUEUES_MAX))

    def record_oldest(self, oldest_at: int | None) -> None:
        """Record the push time of the oldest unfinished message."""
        self._second.oldest_at = oldest_at

    def counts(self) -> tuple[int, ...]:
        """Return the counts of all queues since the start, in the order of `COUNTED`."""
        queues = (*self._queues.values(), self._beyond)
        return tuple(
            before + sum([getattr(one, name) for one in queues])
            for name, before in zip(COUNTED, self._counts, strict=True)
        )

    def _catch_up(self) -> None:
        now = time.perf_counter()
        if now >= self._rotate_at:
            self._rotate(now)

    def _rotate(self, now: float) -> None:
        """Close the current second, and the bin and minute if they are over."""
        self._seconds.append(self._second.step())
        at = self._begin_second(now)
        if at - at % _BIN != self._bin.at:
            self._fold(self._minute)
            self.counters.fold(self._queues)
            self.tenants.mark()
            self._counts = tuple(map(sub, self.counts(), [getattr(self._beyond, name) for name in COUNTED]))
            self._bins.append(self._bin)
            self._queues = {}
            self._bin = Bin(at - at % _BIN, self._queues, {}, {})
        if at - at % _MINUTE != self._minute.at:
            self._close(self._minute)
            self._closed.append(self._minute)
            few = dict(islice(self._minute.queues.items(), QUEUES_MAX))
            self._minutes.append(msgspec.structs.replace(self._minute, queues=few))
            self._minute = self._begin_minute(at)
        self._second = _Meter(self, at)

    def _begin_second(self, now: float) -> int:
        at = wall_clock()
        self._rotate_at = now + 1 - at / 1e6 % 1
        return at - at % 1_000_000

    def _begin_minute(self, at: int) -> Minute:
        self._minute_meter = _Meter(self, at - at % _MINUTE)
        return Minute(at - at % _MINUTE, self._tallies())

    def _fold(self, minute: Minute, *, copied: bool = False) -> None:
        """Add the current bin to a minute."""
        for queue_id, counts in self._queues.items():
            found = minute.queues.get(queue_id)
            if found is None:
                if len(minute.queues) >= BIN_QUEUES_MAX:
                    continue
                found = QueueCounts()
            elif copied:
                found = msgspec.structs.replace(found)
            found.add(counts)
            minute.queues[queue_id] = found

    def _tallies(self) -> dict[str, Tally]:
        return {kind: Tally(each.count, each.items, each.errors) for kind, each in self.verbs.items()}

    def _close(self, minute: Minute) -> None:
        for kind, now in self._tallies().items():
            minute.verbs[kind] = Tally(*(new - old for new, old in zip(now, minute.base[kind], strict=True)))
        minute.cpu_seconds = cpu_seconds()
        minute.resident_bytes = resident_bytes()
        minute.step = self._minute_meter.step()
