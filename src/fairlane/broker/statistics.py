"""Statistics: what the queues of a tenant hold, in numbers, and what this broker counted over time.

Counting costs a look at every partition. With many of them a count serves for twenty times as long as it took, so that
dashboards which ask every second do not keep the store busy; while counting is cheap, every answer is fresh. Which
queues there are, and how they are set up, is read anew each time: whoever has just changed a queue sees it so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import fmean, median
from typing import Any, NamedTuple

from fairlane.errors import InvalidRequest
from fairlane.model import stats
from fairlane.model.moment import Moment
from fairlane.model.queue import Queue
from fairlane.model.stats import GroupStats, QueueStats
from fairlane.runtime.clock import wall_clock
from fairlane.store.contract.store import Store
from fairlane.telemetry import KINDS, Minute, QueueCounts, Tally, Telemetry
from fairlane.wire import queues as wire
from fairlane.wire.admin import AdminQueue
from fairlane.wire.base import made
from fairlane.wire.status import SpanQuery, TimeRange

_SHARE = 20
_SECONDS_MAX = 10.0
_CHEAP_SECONDS = 0.02
_UNREAD_QUEUES = 100  # that are looked into, each with a statement of its own
_UNREAD_PARTITIONS = 1000
_WIDTHS = ((60, 1), (6 * 60, 5), (24 * 60, 15), (7 * 24 * 60, 60))
"""(longest range, width of a bucket), in minutes."""
_WIDEST = 360
_MINUTE = 60_000_000

Counted = list[tuple[Queue, QueueStats]]


class _Count(NamedTuple):
    """The count of a queue, by its id: when it began, and until when it serves."""

    at: float
    until: float
    stats: dict[int, QueueStats]


class Span(NamedTuple):
    """A range of time in microseconds, and how wide its buckets are."""

    since: int
    until: int

    @property
    def width_minutes(self) -> int:
        minutes = (self.until - self.since) / 60e6
        return next((width for longest, width in _WIDTHS if minutes <= longest), _WIDEST)

    def shown(self) -> TimeRange:
        return TimeRange(since=Moment(self.since), until=Moment(self.until))


class Statistics:
    def __init__(self, store: Store, tenant: str, telemetry: Telemetry) -> None:
        self._store = store
        self._tenant = tenant
        self._telemetry = telemetry
        self._known: _Count | None = None
        self._recent: list[tuple[Queue, GroupStats]] = []
        self._recent_until = 0.0

    async def now(self) -> int:
        """The store's time, by which ages are told."""
        return await self._store.now()

    async def queues(self, where: SpanQuery | None = None) -> Counted:
        """Every queue, or those that are meant, newest first, with its numbers."""
        queues = await self._store.queues.list(self._tenant)
        ids = [queue.id for queue in queues]
        known = self._known
        if known is None or time.monotonic() >= known.until:
            known = await self._count(ids)
        elif born := [id for id in ids if id not in known.stats]:
            known.stats.update(await self._stats(born))
        return [(queue, known.stats[queue.id]) for queue in chosen(queues, where) if queue.id in known.stats]

    async def _count(self, ids: list[int]) -> _Count:
        began = time.monotonic()
        counted = await self._stats(ids)
        found = _Count(at=began, until=serves_until(began), stats=counted)
        self._telemetry.counted({id: one.unfinished for id, one in counted.items()})
        if self._known is None or self._known.at <= began:  # one that began later may have ended sooner
            self._known = found
        return found

    async def _stats(self, ids: list[int]) -> dict[int, QueueStats]:
        return {one.queue_id: one for one in await self._store.statistics.queues(ids)}

    def age_seconds(self) -> int:
        """Of the numbers that `queues` last answered."""
        return int(time.monotonic() - self._known.at) if self._known is not None else 0

    async def recent_groups(self) -> list[tuple[Queue, GroupStats]]:
        """The same as `groups`, by a look that serves as a count does."""
        began = time.monotonic()
        if began >= self._recent_until:
            self._recent = await self.groups()
            self._recent_until = serves_until(began)
        return self._recent

    async def oldest_by_queue(self) -> dict[int, int]:
        """When the oldest message of each queue came that some group of it has not finished, by such a look."""
        oldest: dict[int, int] = {}
        for queue, one in await self.recent_groups():
            if one.oldest_at is not None:
                oldest[queue.id] = min(one.oldest_at, oldest.get(queue.id, one.oldest_at))
        return oldest

    async def groups(self) -> list[tuple[Queue, GroupStats]]:
        """Every group of every queue, by name and queue."""
        queues = {queue.id: queue for queue in await self._store.queues.list(self._tenant)}
        found = [
            (queues[counted.group.queue_id], counted) for counted in await self._store.statistics.groups(list(queues))
        ]
        return sorted(found, key=lambda entry: (entry[1].group.name, entry[0].name))

    async def oldest(self, counted: Counted, groups: Iterable[GroupStats]) -> dict[int, int]:
        """When the oldest unfinished message of each queue came, by the slowest of its groups. Of queues that nobody
        reads the first are looked into, and in each the first partitions."""
        oldest: dict[int, int] = {}
        read_by_some: set[int] = set()
        for one in groups:
            id = one.group.queue_id
            read_by_some.add(id)
            if one.oldest_at is not None:
                oldest[id] = min(one.oldest_at, oldest.get(id, one.oldest_at))
        unread = [queue.id for queue, found in counted if queue.id not in read_by_some and found.unfinished]
        for id in unread[:_UNREAD_QUEUES]:
            partitions = await self._store.statistics.partitions(id, limit=_UNREAD_PARTITIONS)
            times = [each.oldest_at for each in partitions if each.oldest_at is not None]
            if times:
                oldest[id] = min(times)
        return oldest

    async def admin_queues(self) -> list[AdminQueue]:
        """Every queue by name, with its depth, age, rate and dead letters."""
        counted = sorted(await self.queues(), key=lambda entry: entry[0].name)
        groups = await self._store.statistics.groups([queue.id for queue, _ in counted])
        oldest = await self.oldest(counted, groups)
        rates, now = self._pushed_in_a_minute(), await self._store.now()
        return [
            AdminQueue(
                name=queue.name,
                depth=found.pending,
                in_flight=found.leased,
                oldest_message_age_seconds=max(0, now - oldest[queue.id]) / 1e6 if queue.id in oldest else None,
                messages_per_minute=round(rates.get(queue.id, 0.0), 1),
                dead_letters=found.dead,
            )
            for queue, found in counted
        ]

    def _pushed_in_a_minute(self) -> dict[int, float]:
        """Messages pushed in the last sixty seconds, by queue: the minute that runs, and of the one before as much as
        is within them."""
        now, rates = wall_clock(), dict[int, float]()
        for minute in self._telemetry.minutes(now - 2 * _MINUTE, now):
            share = 1.0 if now - minute.at < _MINUTE else 1 - (now - minute.at - _MINUTE) / _MINUTE
            for queue_id, found in minute.queues.items():
                rates[queue_id] = rates.get(queue_id, 0.0) + found.pushed * max(0.0, share)
        return rates

    async def namespaces(self) -> list[wire.NamespaceSummary]:
        """What the queues hold, by namespace."""
        found = _by_label(await self.queues(), lambda queue: queue.namespace)
        return [wire.NamespaceSummary(namespace=name, **fields) for name, fields in found]

    async def tasks(self) -> list[wire.TaskSummary]:
        """What the queues hold, by task."""
        found = _by_label(await self.queues(), lambda queue: queue.task)
        return [wire.TaskSummary(task=name, **fields) for name, fields in found]

    async def overview(self) -> wire.Overview:
        """What all queues hold together."""
        counted, now = await self.queues(), await self._store.now()
        groups = [entry for _, entry in await self.groups()]
        self._telemetry.aged(min((one.oldest_at for one in groups if one.oldest_at is not None), default=None))
        ages = [(now - group.oldest_at) / 1e6 if group.oldest_at is not None else 0.0 for group in groups]
        verbs = self._telemetry.minutes(0, 2**62)[-2:][0].verbs  # of the last full minute
        return wire.Overview(
            queues=len(counted),
            partitions=sum(found.partitions for _, found in counted),
            namespaces=len({queue.namespace for queue, _ in counted}),
            tasks=len({queue.task for queue, _ in counted}),
            messages=summed(counted),
            lag=wire.Lag(time=spread(ages), offset=spread([float(group.lag) for group in groups])),
            throughput=wire.Throughput(
                ingested_per_second=verbs["push"].items / 60, processed_per_second=verbs["ack"].items / 60
            ),
            timestamp=Moment(now),
            stats_age=self.age_seconds(),
        )

    async def span(self, query: SpanQuery, *, hours: int = 1) -> Span:
        """The time that is asked for; the last hours unless the query says otherwise."""
        until = await self._store.now() if query.until is None else query.until
        since = until - hours * 3_600_000_000 if query.since is None else query.since
        if since > until:
            raise InvalidRequest("`from` must not be later than `to`")
        return Span(since, until)

    def series(self, span: Span) -> list[Bucket]:
        """What this broker counted, oldest first; times in which it did not run have no bucket."""
        width = span.width_minutes * _MINUTE
        found: dict[int, Bucket] = {}
        for minute in self._telemetry.minutes(*span):
            at = minute.at - minute.at % width
            found.setdefault(at, Bucket(at)).add(minute)
        return [found[at] for at in sorted(found)]


def serves_until(began: float) -> float:
    """Until when a count serves that began then and has just ended."""
    now = time.monotonic()
    return now + (0.0 if now - began < _CHEAP_SECONDS else min(_SECONDS_MAX, (now - began) * _SHARE))


def chosen(queues: list[Queue], where: SpanQuery | None) -> list[Queue]:
    """The queues that a query means."""
    if where is None:
        return queues
    return [
        queue
        for queue in queues
        if where.queue in (None, queue.name)
        and where.namespace in (None, queue.namespace)
        and where.task in (None, queue.task)
    ]


def counts(of: stats.Counts) -> wire.Counts:
    return made(wire.Counts, of, processing=of.leased, dead_letter=of.dead)


def summed(counted: Counted) -> wire.Counts:
    some = [counts(found) for _, found in counted]
    return wire.Counts(**{name: sum(getattr(each, name) for each in some) for name in wire.Counts.__struct_fields__})


def spread(values: list[float]) -> wire.Spread:
    if not values:
        return wire.Spread(avg=0, median=0, min=0, max=0)
    return wire.Spread(avg=fmean(values), median=median(values), min=min(values), max=max(values))


def _by_label(counted: Counted, label: Callable[[Queue], str]) -> list[tuple[str, dict[str, Any]]]:
    found: dict[str, list[QueueStats]] = {}
    for queue, one in counted:
        found.setdefault(label(queue), []).append(one)
    return [(name, _together(found[name])) for name in sorted(found)]


def _together(some: list[QueueStats]) -> dict[str, Any]:
    messages = wire.NamespaceCounts(total=sum(one.total for one in some), pending=sum(one.pending for one in some))
    return {"queues": len(some), "partitions": sum(one.partitions for one in some), "messages": messages}


class Bucket:
    """A bucket of telemetry: what happened from `at` on, for `seconds`."""

    __slots__ = ("at", "cpu_seconds", "queues", "resident_bytes", "seconds", "verbs")

    def __init__(self, at: int) -> None:
        self.at = at
        self.seconds = 0
        self.verbs = dict.fromkeys(KINDS, Tally(0, 0, 0))
        self.queues: dict[int, QueueCounts] = {}
        self.cpu_seconds = (0.0, 0.0)
        self.resident_bytes = 0

    def add(self, minute: Minute) -> None:
        self.seconds += 60
        for kind, tally in minute.verbs.items():
            self.verbs[kind] = Tally(*map(sum, zip(self.verbs[kind], tally, strict=True)))
        for queue_id, found in minute.queues.items():
            self.queues.setdefault(queue_id, QueueCounts()).add(found)
        self.cpu_seconds = minute.cpu_seconds
        self.resident_bytes = minute.resident_bytes

    def total(self) -> QueueCounts:
        total = QueueCounts()
        for found in self.queues.values():
            total.add(found)
        return total

    def errors(self) -> int:
        return sum(tally.errors for tally in self.verbs.values())
