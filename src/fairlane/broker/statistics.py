"""Statistics: the contents of a tenant's queues, and the counts of this broker over time.

A count reads every partition; `count_cache.py` defines how old a number may be. The list of queues and their options
are never cached: a caller that has just changed a queue sees the change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairlane.broker.count_cache import CountCache
from fairlane.broker.peer_stats import PeerStats
from fairlane.counts import Minute, QueueCounts, Tally
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model import stats
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.principal import ANYBODY, Principal
from fairlane.model.queue import Queue
from fairlane.model.stats import GroupStats, QueueStats
from fairlane.runtime.clock import wall_clock
from fairlane.store.contract.store import Store
from fairlane.telemetry import KINDS
from fairlane.wire import queues as wire
from fairlane.wire.admin import AdminQueue
from fairlane.wire.status import SpanQuery, TimeRange

_UNREAD_QUEUES = 100  # unread queues that are checked
_UNREAD_PARTITIONS = 1000
_WIDTHS = ((60, 1), (6 * 60, 5), (24 * 60, 15), (7 * 24 * 60, 60))
"""(longest range, width of a bucket), in minutes."""
_WIDEST = 360
_MINUTE = 60_000_000

Counted = list[tuple[Queue, QueueStats]]


class Span(NamedTuple):
    """A time range in microseconds, and the width of its buckets."""

    since: int
    until: int

    @property
    def width_minutes(self) -> int:
        minutes = (self.until - self.since) / 60e6
        return next((width for longest, width in _WIDTHS if minutes <= longest), _WIDEST)

    def shown(self) -> TimeRange:
        return TimeRange(since=Moment(self.since), until=Moment(self.until))


class Statistics:
    def __init__(self, store: Store, tenant: str | None, peer_stats: PeerStats) -> None:
        """Create the statistics of a tenant's queues, or of all queues with None."""
        self._store = store
        self._tenant = tenant
        self._telemetry = telemetry = peer_stats.telemetry
        self._peer_stats = peer_stats
        self._listed: list[Queue] = []
        self._stamp: object = None
        self._queues = CountCache(telemetry, self._count_queues, lambda found: found.partitions)
        self._groups = CountCache(telemetry, self._count_groups, lambda found: sum(one.lanes for one in found))

    async def _count_queues(self, ids: Sequence[int]) -> dict[int, QueueStats]:
        return {one.queue_id: one for one in await self._store.statistics.queues(ids)}

    async def _count_groups(self, ids: Sequence[int]) -> dict[int, list[GroupStats]]:
        found: dict[int, list[GroupStats]] = {}
        counted = await self._store.statistics.groups(ids)
        self._telemetry.record_lags((one.group_id, one.lag) for one in counted)
        for one in counted:
            found.setdefault(one.group.queue_id, []).append(one)
        return found

    async def now(self) -> int:
        """Return the store's time, which ages refer to."""
        return await self._store.now()

    async def stop(self) -> None:
        await self._queues.stop()
        await self._groups.stop()

    async def listed(self) -> list[Queue]:
        """Return all queues, newest first. They are read again only if some changed."""
        stamp = await self._store.queues.stamp(self._tenant)
        if stamp != self._stamp:
            self._listed, self._stamp = await self._store.queues.all(self._tenant), stamp
            for cache in (self._queues, self._groups):
                cache.forget_others(queue.id for queue in self._listed)
        return self._listed

    async def queues(self, where: SpanQuery | None = None, caller: Principal = ANYBODY) -> Counted:
        """Return the matching queues that the caller may see with their numbers, newest first."""
        queues = visible_to(caller, chosen(await self.listed(), where))
        looks = self._queues.refreshes
        found = await self._queues.of([queue.id for queue in queues])
        if where is None and caller.allows_all("status") and looks != self._queues.refreshes:
            depths = {id: one.unfinished for id, one in found.items()}
            look = self._tenant == DEFAULT_TENANT and not self._telemetry.measures_depths
            self._telemetry.record_depths(depths, whole=look or self._tenant is None)
        return [(queue, found[queue.id]) for queue in queues if queue.id in found]

    async def queue(self, queue_id: int) -> QueueStats:
        """Return the numbers of one queue. Raises NotFound."""
        found = await self._queues.of([queue_id])
        if queue_id not in found:
            raise NotFound("Queue not found")
        return found[queue_id]

    async def groups_of(self, queue_id: int) -> list[GroupStats]:
        """Return the groups of one queue, by name."""
        found = (await self._groups.of([queue_id])).get(queue_id, [])
        return sorted(found, key=lambda one: one.group.name)

    async def groups(self) -> list[tuple[Queue, GroupStats]]:
        """Return the groups of all queues, by name and queue."""
        queues = await self.listed()
        found = await self._groups.of([queue.id for queue in queues])
        pairs = [(queue, one) for queue in queues for one in found.get(queue.id, ())]
        return sorted(pairs, key=lambda entry: (entry[1].group.name, entry[0].name))

    def changed(self, queue_id: int) -> None:
        """Drop the counts of a queue that was cleared, or that has a group that was moved or deleted."""
        self._queues.forget(queue_id)
        self._groups.forget(queue_id)

    def age_seconds(self) -> int:
        """Return the age of the numbers of queues in the last answer."""
        return self._queues.age_seconds()

    def groups_age_seconds(self) -> int:
        """Return the age of the numbers of groups in the last answer."""
        return self._groups.age_seconds()

    async def oldest(self, counted: Counted, groups: Sequence[GroupStats]) -> dict[int, int]:
        """Return the time of the oldest unfinished message of each queue.

        It is the oldest over all groups. Of queues without groups only the first are checked, and in each the first
        partitions.
        """
        read_by_some = {one.group.queue_id for one in groups}
        unread = [queue.id for queue, found in counted if queue.id not in read_by_some and found.unfinished]
        return _oldest(groups) | await self._store.statistics.oldest(
            unread[:_UNREAD_QUEUES], partitions=_UNREAD_PARTITIONS
        )

    async def admin_queues(self, caller: Principal = ANYBODY) -> list[AdminQueue]:
        """Return all queues by name, with depth, age, rate and dead letters."""
        counted = await self.queues(caller=caller)
        oldest = await self.oldest(counted, [one for _, one in await self.groups()])
        rates, now = await self._pushed_in_a_minute(), await self._store.now()
        return [
            AdminQueue(
                name=queue.name,
                depth=found.pending,
                in_flight=found.leased,
                oldest_message_age_seconds=max(0, now - oldest[queue.id]) / 1e6 if queue.id in oldest else None,
                messages_per_minute=round(rates.get(queue.id, 0.0), 1),
                dead_letters=found.dead,
            )
            for queue, found in sorted(counted, key=lambda entry: entry[0].name)
        ]

    async def _pushed_in_a_minute(self) -> dict[int, float]:
        """Return the messages pushed in the last sixty seconds, by queue: this minute and part of the previous one."""
        now, rates = wall_clock(), dict[int, float]()
        for minute in await self._peer_stats.minutes(now - 2 * _MINUTE, now):
            share = 1.0 if now - minute.at < _MINUTE else 1 - (now - minute.at - _MINUTE) / _MINUTE
            for queue_id, found in minute.queues.items():
                rates[queue_id] = rates.get(queue_id, 0.0) + found.pushed * max(0.0, share)
        return rates

    async def namespaces(self, caller: Principal = ANYBODY) -> list[wire.NamespaceSummary]:
        """Return the contents of the queues, by namespace."""
        found = _by_label(await self.queues(caller=caller), lambda queue: queue.namespace)
        return [wire.NamespaceSummary(namespace=name, **fields) for name, fields in found]

    async def tasks(self, caller: Principal = ANYBODY) -> list[wire.TaskSummary]:
        """Return the contents of the queues, by task."""
        found = _by_label(await self.queues(caller=caller), lambda queue: queue.task)
        return [wire.TaskSummary(task=name, **fields) for name, fields in found]

    async def overview(self, caller: Principal = ANYBODY) -> wire.Overview:
        """Return the contents of all queues together."""
        counted, now = await self.queues(caller=caller), await self._store.now()
        groups = [entry for _, entry in await self.groups()]
        if self._tenant == DEFAULT_TENANT:
            self._telemetry.record_oldest(
                min((one.oldest_at for one in groups if one.oldest_at is not None), default=None)
            )
        ages = [(now - group.oldest_at) / 1e6 if group.oldest_at is not None else 0.0 for group in groups]
        pushed = acked = 0
        # The first element is the last full minute. The list is empty just after the clock jumped forward.
        for minute in (await self._peer_stats.minutes(wall_clock() - 2 * _MINUTE))[:1]:
            pushed, acked = minute.verbs["push"].items, minute.verbs["ack"].items
            if self._tenant != DEFAULT_TENANT:  # a tenant does not see the throughput of others
                own = [found for queue, _ in counted if (found := minute.queues.get(queue.id)) is not None]
                pushed, acked = sum(one.pushed for one in own), sum(one.acks for one in own)
        return wire.Overview(
            queues=len(counted),
            partitions=sum(found.partitions for _, found in counted),
            namespaces=len({queue.namespace for queue, _ in counted}),
            tasks=len({queue.task for queue, _ in counted}),
            messages=summed(counted),
            lag=wire.Lag(time=spread(ages), offset=spread([float(group.lag) for group in groups])),
            throughput=wire.Throughput(ingested_per_second=pushed / 60, processed_per_second=acked / 60),
            timestamp=Moment(now),
            stats_age=self.age_seconds(),
        )

    async def span(self, query: SpanQuery, *, hours: int = 1) -> Span:
        """Return the requested time range, by default the last `hours`."""
        until = await self._store.now() if query.until is None else query.until
        since = until - hours * 3_600_000_000 if query.since is None else query.since
        if since > until:
            raise InvalidRequest("`from` must not be later than `to`")
        return Span(since, until)

    async def series(self, span: Span) -> list[Bucket]:
        """Return the counts of this broker, oldest first. Times in which it did not run have no bucket."""
        width = span.width_minutes * _MINUTE
        found: dict[int, Bucket] = {}
        for minute in await self._peer_stats.minutes(*span):
            at = minute.at - minute.at % width
            found.setdefault(at, Bucket(at)).add(minute)
        return [found[at] for at in sorted(found)]


def visible_to(caller: Principal, queues: list[Queue]) -> list[Queue]:
    """Return the queues that a caller may see."""
    if caller.allows_all("status"):
        return queues
    return [queue for queue in queues if caller.allows("status", queue.name)]


def chosen(queues: list[Queue], where: SpanQuery | None) -> list[Queue]:
    """Return the queues that a query selects."""
    if where is None:
        return queues
    return [
        queue
        for queue in queues
        if where.queue in (None, queue.name)
        and where.namespace in (None, queue.namespace)
        and where.task in (None, queue.task)
    ]


def _oldest(groups: Sequence[GroupStats]) -> dict[int, int]:
    """Return the time of the oldest message of each queue that some of these groups has not finished."""
    oldest: dict[int, int] = {}
    for one in groups:
        if one.oldest_at is not None:
            oldest[one.group.queue_id] = min(one.oldest_at, oldest.get(one.group.queue_id, one.oldest_at))
    return oldest


def counts(of: stats.Counts) -> wire.Counts:
    return wire.Counts(
        total=of.total,
        pending=of.pending,
        processing=of.leased,
        completed=of.completed,
        failed=of.failed,
        dead_letter=of.dead,
    )


def summed(counted: Counted) -> wire.Counts:
    some = [found for _, found in counted]  # for very many queues, one pass per number is faster
    return wire.Counts(
        total=sum([one.total for one in some]),
        pending=sum([one.pending for one in some]),
        processing=sum([one.leased for one in some]),
        completed=sum([one.completed for one in some]),
        failed=sum([one.failed for one in some]),
        dead_letter=sum([one.dead for one in some]),
    )


def spread(values: list[float]) -> wire.Spread:
    if not values:
        return wire.Spread(avg=0, median=0, min=0, max=0)
    from statistics import fmean, median  # here, because a broker starts faster without it

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
    """A bucket of telemetry: the counts from `at` on, for `seconds`."""

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
