"""Telemetry: counters of what the broker does, since it started. Kept in memory; `http` shows them.

Recording must cost less than a microsecond a request: it adds to plain numbers, and what takes thought
(percentiles, series) is left to whoever asks.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import sub
from typing import Final, NamedTuple, TypeVar

import msgspec

from fairlane.runtime.clock import wall_clock
from fairlane.runtime.process import cpu_seconds, resident_bytes

T = TypeVar("T")
KINDS: Final = ("push", "pop", "ack", "transaction", "renew_lease")
MINUTES_MAX: Final = 24 * 60
QUEUES_MAX: Final = 200  # counted one by one in each minute; what comes beyond is in the totals only
SECONDS_MAX: Final = 300
BIN_SECONDS: Final = 5
BINS_MAX: Final = SECONDS_MAX // BIN_SECONDS
BIN_QUEUES_MAX: Final = 1000
COUNTED: Final = ("pushed", "popped", "acks", "failed", "dead")
CLOCKED: Final = ("push", "pop", "ack")
_SHARES: Final = (0.5, 0.99)
_STEPS: Final = 4  # buckets to each doubling of the latency, so that a percentile is right within a fifth
_OCTAVES: Final = 40
_BIN: Final = BIN_SECONDS * 1_000_000
_MINUTE: Final = 60_000_000


class VerbStats(msgspec.Struct):
    """The counts of one verb: how often, how many items, how long. Errors are not part of the latencies."""

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
        """The latency that `share` of the calls did not exceed, as near as the buckets tell."""
        return percentile(self.buckets, share) * 1e3

    def histogram(self, first: int = 5, upto: int = 25) -> Iterator[tuple[float, int]]:
        """(seconds, how many took no longer), one for each doubling: from 128 us to 67 s, unless told otherwise."""
        seen = sum(self.buckets[: first * _STEPS])
        for octave in range(first, upto):
            seen += sum(self.buckets[octave * _STEPS : (octave + 1) * _STEPS])
            yield upper_bound(octave * _STEPS + _STEPS - 1), seen


def percentile(buckets: Sequence[int], share: float) -> float:
    """The latency, in seconds, that `share` of what was counted did not exceed; 0 if there is none."""
    wanted, seen = share * sum(buckets), 0
    for index, found in enumerate(buckets):
        seen += found
        if found and seen >= wanted:
            return upper_bound(index)
    return 0.0


def upper_bound(bucket: int) -> float:
    """The latency, in seconds, that everything counted in a bucket stays below."""
    octave, step = divmod(bucket, _STEPS)
    return (bucket + 1 if octave == 0 else (_STEPS + step + 1) << octave - 1) / 1e6


class CommandCounts(msgspec.Struct):
    """Counts of one command: how it ended, and how long it took where it was done."""

    done: VerbStats = msgspec.field(default_factory=VerbStats)
    failed: int = 0
    dead: int = 0

    def record(self, status: str, seconds: float) -> None:
        """`status` is that of the ack."""
        if status == "completed":
            self.done.record(seconds, 1)
        elif status == "dlq":
            self.dead += 1
        elif status == "failed":
            self.failed += 1


class QueueCounts(msgspec.Struct):
    """Counts of one queue in some seconds, or in one minute."""

    pushes: int = 0
    pushed: int = 0
    pops: int = 0
    popped: int = 0
    pops_empty: int = 0
    acks: int = 0
    failed: int = 0
    dead: int = 0
    lag_ms: float = 0.0
    lag_max_ms: float = 0.0
    """How old the first message of each pop was: in all, and at most."""
    depth: int | None = None
    """What was not finished when somebody counted last."""

    def add(self, more: QueueCounts) -> None:
        for name in QueueCounts.__struct_fields__[:-2]:
            setattr(self, name, getattr(self, name) + getattr(more, name))
        self.lag_max_ms = max(self.lag_max_ms, more.lag_max_ms)
        self.depth = self.depth if more.depth is None else more.depth

    def mean_lag_ms(self) -> float:
        full = self.pops - self.pops_empty
        return self.lag_ms / full if full else 0.0


class Tally(NamedTuple):
    calls: int
    items: int
    errors: int


class Step(NamedTuple):
    """A second or a minute of all queues together: messages by what happened to them (`COUNTED`), and for each verb of
    `CLOCKED` its median and 99th percentile in seconds, None where there was no call."""

    at: int
    counts: tuple[int, ...]
    latencies: tuple[float | None, ...]
    depth: int | None
    oldest_at: int | None
    lag: int | None = None
    """Of one group, where it was asked for."""


class Bin(NamedTuple):
    """A few seconds, by queue."""

    at: int
    queues: dict[int, QueueCounts]
    lags: dict[int, int]
    """What each group had not finished when somebody counted last."""


class Minute(msgspec.Struct):
    """A minute of telemetry: what happened in it, by verb and by queue."""

    at: int
    base: dict[str, Tally] = {}
    verbs: dict[str, Tally] = {}
    queues: dict[int, QueueCounts] = {}
    lags: dict[int, int] = {}
    cpu_seconds: tuple[float, float] = (0.0, 0.0)
    resident_bytes: int = 0
    step: Step | None = None


class _Meter:
    """A meter of what happens from now on, of all queues together."""

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
    """One for a broker. `done` and `failed` at the end of each call, `queue` wherever messages pass."""

    def __init__(self) -> None:
        self.started_at = wall_clock()
        self.verbs = {kind: VerbStats() for kind in KINDS}
        self.push, self.pop, self.ack, self.transaction, self.renew_lease = self.verbs.values()
        self.commands: dict[str, CommandCounts] = {}
        """By name, those that this broker carries out."""
        self.hooks: Counter[tuple[str, str]] = Counter()
        """Webhooks that came, by name and what became of them; those of unknown names are under none."""
        self.time_in_queue = VerbStats()
        """How old the first message of each pop was."""
        self.redelivered = self.leases_lost = self.dead = 0
        """Messages handed out after a failed attempt; leases that pops found to have run out; dead letters made."""
        self.deleted = self.deleted_unread = 0
        """Messages that retention deleted, and those of them that some group had not finished."""
        self._seconds: deque[Step] = deque(maxlen=SECONDS_MAX)
        self._bins: deque[Bin] = deque(maxlen=BINS_MAX)
        self._minutes: deque[Minute] = deque(maxlen=MINUTES_MAX)
        self._beyond = QueueCounts()
        self._counts = (0,) * len(COUNTED)
        """Of all queues, in bins that are over."""
        self._turn_at = 0.0
        """When the second that runs is over: one moment is all that a call looks at."""
        at = self._begin_second(time.perf_counter())
        self._queues: dict[int, QueueCounts] = {}
        self._bin = Bin(at - at % _BIN, self._queues, {})
        self._second = _Meter(self, at)
        self._minute = self._begin_minute(at)

    def done(self, verb: VerbStats, began: float, items: int) -> None:
        """A call that began at `began` (`time.perf_counter`) and had so many items is over."""
        now = time.perf_counter()
        if now >= self._turn_at:
            self._turn(now)
        verb.record(now - began, items)

    def popped(self, queue_id: int, began: float, items: int, redelivered: int, lag_seconds: float) -> None:
        """A pop of a queue that began then is over; its first message was so old."""
        self.done(self.pop, began, items)
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

    async def measured(self, verb: VerbStats, items: int, work: Awaitable[T]) -> T:
        """What `work` comes to, counted; an exception counts as an error."""
        began = time.perf_counter()
        try:
            outcome = await work
        except Exception:  # whatever it is, it is counted and goes on to the caller
            verb.errors += 1
            raise
        self.done(verb, began, items)
        return outcome

    def queue(self, queue_id: int) -> QueueCounts:
        """The counts of a queue in the seconds that run."""
        now = time.perf_counter()
        if now >= self._turn_at:
            self._turn(now)
        queues = self._queues
        counts = queues.get(queue_id)
        if counts is None:
            if len(queues) >= BIN_QUEUES_MAX:
                return self._beyond
            counts = queues[queue_id] = QueueCounts()
        return counts

    def gave_up(self, queue_id: int, messages: int) -> None:
        """So many messages of a queue were dead-lettered."""
        self.queue(queue_id).dead += messages
        self.dead += messages

    def command(self, name: str) -> CommandCounts:
        return self.commands.setdefault(name, CommandCounts())

    def minutes(self, since: int, until: int) -> list[Minute]:
        """The minutes that began from `since` to `until`, oldest first; the last may still run."""
        self._catch_up()
        running = msgspec.structs.replace(self._minute, queues=dict(self._minute.queues), verbs={})
        self._fold(running, copied=True)
        self._close(running)
        return [minute for minute in (*self._minutes, running) if since <= minute.at <= until]

    def seconds(self) -> list[Step]:
        """The last seconds in which something happened or was asked, oldest first, without the one that runs."""
        self._catch_up()
        return list(self._seconds)

    def bins(self) -> list[Bin]:
        """The last bins in which something happened or was asked, oldest first, without the one that runs."""
        self._catch_up()
        return list(self._bins)

    @property
    def turn(self) -> int:
        """When the bin began that runs."""
        self._catch_up()
        return self._bin.at

    def touched(self, since: int) -> dict[int, int]:
        """Queues to which something happened in the bins from this turn on, each with its last turn."""
        self._catch_up()
        return {id: bin.at for bin in (*self._bins, self._bin) if bin.at >= since for id in bin.queues}

    def counted(self, depths: Mapping[int, int], *, whole: bool) -> None:
        """Somebody counted what is not finished, by queue; `whole`: of all queues that are shown together."""
        self._catch_up()
        if whole:
            self._second.depth = self._minute_meter.depth = sum(depths.values())
        for queue_id, counts in self._queues.items():
            if whole or queue_id in depths:
                counts.depth = depths.get(queue_id)

    def lagged(self, lags: Iterable[tuple[int, int]]) -> None:
        """Somebody counted what groups have not finished, by group."""
        self._catch_up()
        self._bin.lags.update(islice(lags, BIN_QUEUES_MAX))
        self._minute.lags.update(islice(self._bin.lags.items(), QUEUES_MAX))

    def aged(self, oldest_at: int | None) -> None:
        """Somebody looked when the oldest message came that is not finished."""
        self._second.oldest_at = self._minute_meter.oldest_at = oldest_at

    def counts(self) -> tuple[int, ...]:
        """Of all queues since the start, as `COUNTED`."""
        queues = (*self._queues.values(), self._beyond)
        return tuple(
            before + sum([getattr(one, name) for one in queues])
            for name, before in zip(COUNTED, self._counts, strict=True)
        )

    def _catch_up(self) -> None:
        now = time.perf_counter()
        if now >= self._turn_at:
            self._turn(now)

    def _turn(self, now: float) -> None:
        """Close the second that ran, and with it the bin and the minute that are over."""
        self._seconds.append(self._second.step())
        at = self._begin_second(now)
        if at - at % _BIN != self._bin.at:
            self._fold(self._minute)
            self._counts = tuple(map(sub, self.counts(), [getattr(self._beyond, name) for name in COUNTED]))
            self._bins.append(self._bin)
            self._queues = {}
            self._bin = Bin(at - at % _BIN, self._queues, {})
        if at - at % _MINUTE != self._minute.at:
            self._close(self._minute)
            self._minutes.append(self._minute)
            self._minute = self._begin_minute(at)
        self._second = _Meter(self, at)

    def _begin_second(self, now: float) -> int:
        at = wall_clock()
        self._turn_at = now + 1 - at / 1e6 % 1
        return at - at % 1_000_000

    def _begin_minute(self, at: int) -> Minute:
        self._minute_meter = _Meter(self, at - at % _MINUTE)
        return Minute(at - at % _MINUTE, self._tallies())

    def _fold(self, minute: Minute, *, copied: bool = False) -> None:
        """Add the bin that runs to a minute."""
        for queue_id, counts in self._queues.items():
            found = minute.queues.get(queue_id)
            if found is None:
                if len(minute.queues) >= QUEUES_MAX:
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
