"""Queues: create, configure, list, show, clear and delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from fairlane.broker.paging import page_of
from fairlane.broker.resource import Resource
from fairlane.broker.statistics import counts
from fairlane.errors import InvalidRequest, NotFound, OptionsChanged, Unavailable
from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import DEFAULT_PARTITION, check_name, name_or_none
from fairlane.model.principal import ANYBODY, Principal
from fairlane.model.queue import Partition, Queue, QueueOptions, queue_options
from fairlane.model.stats import PartitionStats, QueueStats
from fairlane.store.families.queues import CATALOGUE
from fairlane.wire import queues as wire
from fairlane.wire.leases import GroupUse, LeaseDetail, Utilisation
from fairlane.wire.status import SpanQuery

if TYPE_CHECKING:
    from fairlane.broker.engine import TenantScope
    from fairlane.broker.history import History

_LANES_MAX = 10_000
_SPARKS_MAX = 200


class Queues(Resource):
    def __init__(self, scope: TenantScope, history: History) -> None:
        super().__init__(scope)
        self._history = history
        self.statistics = scope.statistics
        self.known_names = partial(self._catalogue.known_names, self._tenant)
        """Returns the cached names of a partition's queue and of the partition, or None each."""

    async def existing(self, name: str) -> Queue:
        """Return the queue from the store. Raises NotFound."""
        queue = await self._store.queues.get(self._tenant, check_name("queue", name))
        if queue is None:
            raise NotFound("Queue not found")
        return queue

    async def exists(self, name: str) -> bool:
        """Return True if the queue exists, from the cache while the store is unavailable."""
        try:
            return await self._catalogue.queue(self._tenant, check_name("queue", name), make=False) is not None
        except Unavailable:
            return self._catalogue.recall(self._tenant, name) is not None

    async def partition_names(
        self, partitions: Iterable[PartitionId]
    ) -> dict[PartitionId, tuple[str | None, str | None]]:
        """Return the names of the queue and of the partition, for each partition whose names are known."""
        away = not self._engine.write_router.health.up
        return {
            partition: self.known_names(partition) if away else await self._catalogue.names(self._tenant, partition)
            for partition in dict.fromkeys(partitions)
        }

    async def wake(self, queue: str) -> None:
        """Wake long polls of a queue, because it may have messages."""
        known = await self._catalogue.queue(self._tenant, check_name("queue", queue), make=False)
        if known is not None:
            self._engine.waiters.wake(known.id, len(self._engine.waiters))

    async def configure(
        self, queue: str, /, *, namespace: str | None = None, task: str | None = None, **options: Any
    ) -> Queue:
        """Create a queue or replace its options.

        An option that is not named gets the value that a spec in force declares for the queue, or its default.
        """
        check_name("queue", queue)
        for label, given in (("namespace", namespace), ("task", task)):
            if given:
                check_name(label, given)
            elif given is not None and not isinstance(given, str):
                raise InvalidRequest(f"{label} must be a string, not {type(given).__name__}")
        declared = await self._store.queues.declared(self._tenant, queue)
        defaults = asdict(declared) if declared else {}
        return await self._configure(queue, queue_options(**defaults | options), namespace or "", task or "")

    async def _configure(
        self, queue: str, options: QueueOptions, namespace: str, task: str, before: QueueOptions | None = None
    ) -> Queue:
        target = options.dead_letter_queue
        if options.cell:
            await self._store.check_cell(self._tenant, options.cell)
        await self._catalogue.allow(self._tenant, queue, *([target] if isinstance(target, str) else []))
        await self._engine.forwarder.prepare(self._tenant, queue, options)
        configured = await self._store.queues.configure(
            self._tenant, queue, options, namespace=namespace, task=task, before=before
        )
        self._catalogue.forget(configured.id)
        self._catalogue.remember(configured)
        self._store.hint(CATALOGUE)
        return configured

    async def set_options(self, queue: str, /, **options: Any) -> Queue:
        """Change some options of a queue, and keep the others. Raises NotFound."""
        while True:
            there = await self._store.queues.get(self._tenant, check_name("queue", queue))
            if there is None:
                raise NotFound(f"there is no queue {queue!r}")
            changed = queue_options(**asdict(there.options) | options)
            try:
                return await self._configure(queue, changed, there.namespace, there.task, before=there.options)
            except OptionsChanged:
                continue  # another caller changed some meanwhile, and those are kept, too

    async def all(self) -> list[Queue]:
        """Return all queues, newest first."""
        return await self._scope.statistics.listed()

    async def delete(self, queue: str) -> bool:
        known = await self._store.queues.get(self._tenant, check_name("queue", queue))
        deleted = await self._store.queues.delete(self._tenant, queue)
        if known is not None:
            self._catalogue.forget(known.id)
        self._engine.tenants.recount(self._tenant)
        self._store.hint(CATALOGUE)
        return deleted

    async def default_partition(self, queue: Queue) -> Partition:
        """Return the default partition, and create it if it is missing."""
        [partition] = await self._store.queues.ensure_partitions(queue.id, [DEFAULT_PARTITION])
        return partition

    async def summaries(self, where: SpanQuery | None = None) -> list[wire.QueueSummary]:
        """Return the matching queues with their contents, newest first."""
        return [queue_summary(queue, counted) for queue, counted in await self._scope.statistics.queues(where)]

    async def page(self, query: wire.QueueListQuery, caller: Principal = ANYBODY) -> wire.QueueList:
        """Return a page of queues that the caller may see, whose names contain `search`, with contents and rates."""
        rates, none = await self._history.rates(), wire.Rates()
        counted = await self._scope.statistics.queues(caller=caller)
        groups = [one for _, one in await self._scope.statistics.groups()]
        oldest = await self._scope.statistics.oldest(counted, groups)
        readers = Counter(one.group.queue_id for one in groups)

        def rate(one: tuple[Queue, QueueStats]) -> float:
            found = rates.get(one[0].id, none)
            return found.pushed + found.acked

        halted = Counter[int]()
        for one in groups if query.sort == "trouble" else ():
            halted[one.group.queue_id] += one.blocked + one.parked

        def trouble(one: tuple[Queue, QueueStats]) -> tuple[int, bool, bool, int]:
            queue, stats = one
            unread = stats.pending > 0 and not readers[queue.id]
            return halted[queue.id], unread, stats.dead > 0, -oldest.get(queue.id, NEVER_AT)

        shown, total = page_of(
            counted,
            query,
            text=lambda one: one[0].name,
            up={"name": lambda one: one[0].name},
            down={
                "created": lambda one: one[0].id,
                "pending": lambda one: one[1].pending,
                "oldest": lambda one: -oldest.get(one[0].id, NEVER_AT),
                "rate": rate,
                "deadLetters": lambda one: one[1].dead,
                "trouble": trouble,
            },
        )
        ids = [queue.id for queue, _ in shown]
        paused = await self._store.pauses.queues(ids)
        sparks, stopped = dict[int, list[float]](), None
        if len(ids) <= _SPARKS_MAX:
            sparks = await self._history.sparks(ids)
            stopped = Counter(one.queue_id for one in await self._store.statistics.stopped(ids))
        return wire.QueueList(
            queues=[
                wire.ListedQueue(
                    **asdict(queue_summary(queue, stats)),
                    paused=queue.id in paused,
                    lanes_stopped=None if stopped is None else stopped[queue.id],
                    groups=readers[queue.id],
                    oldest_at=moment_or_none(oldest.get(queue.id)),
                    rates=rates.get(queue.id, none),
                    spark=sparks.get(queue.id, []),
                )
                for queue, stats in shown
            ],
            total=total,
            stats_age=self._scope.statistics.age_seconds(),
        )

    async def show(self, queue: str, *, after: str = "", limit: int = 1000) -> wire.QueueDetail:
        """Return one queue with a page of its partitions, after the name `after`. Raises NotFound."""
        known = await self.existing(queue)
        counted = await self._scope.statistics.queue(known.id)
        page = await self.partitions(queue, after=after, limit=limit) if limit else []
        return wire.QueueDetail(
            **asdict(queue_head(known)),
            options=wire.options_out(known.options),
            partitions=page,
            totals=counts(counted),
            next=page[-1].name if page and len(page) == limit else None,
            stats_age=self._scope.statistics.age_seconds(),
        )

    async def partitions(self, name: str, *, after: str = "", limit: int = 1000) -> list[wire.PartitionDetail]:
        """Return a page of the partitions of a queue, by name. Raises NotFound."""
        return [partition_detail(one) for one in await self.counted(name, after=after, limit=limit)]

    async def counted(self, name: str, *, after: str = "", limit: int = 1000) -> list[PartitionStats]:
        """Return the statistics of a page of partitions."""
        queue = await self.existing(name)
        after = check_name("after", after) if after else ""
        return await self._store.statistics.partitions(queue.id, after=after, limit=limit)

    async def depth(self, queue: str) -> int:
        found = await self._catalogue.existing(self._tenant, queue)
        return await self._store.queues.depth(found.id)

    async def depths(self, name: str, group: str | None = None) -> wire.QueueDepth:
        """Return the unfinished messages of a queue, or of one group, by partition. Raises NotFound."""
        queue, statistics, conflation = await self.existing(name), self._store.statistics, False
        if group is None:
            lanes = [(one.name, one.unfinished) for one in await statistics.partitions(queue.id, limit=_LANES_MAX)]
            [counted] = await statistics.queues([queue.id])
            pending = counted.unfinished
        else:
            found = await self._catalogue.existing_group(queue, group)
            conflation = found.subscription.conflation
            states = await self._store.groups.lanes(found.id, limit=_LANES_MAX)
            lanes = [(lane.name, lane.head - lane.committed - lane.skipped) for lane in states]
            pending = next((one.lag for one in await statistics.groups([queue.id]) if one.group_id == found.id), 0)
        owing = [wire.PartitionDepth(partition=name, pending=count) for name, count in lanes if count > 0]
        return wire.QueueDepth(
            queue=queue.name,
            group=group,
            pending=pending,
            partitions_pending=len(owing),
            conflation=conflation,
            effective_pending=len(owing) if conflation else pending,
            partitions=owing,
            capacity=queue.options.max_size or None,
        )

    async def clear(self, queue: str, *, partition: str | None = None) -> int:
        """Delete all messages of a queue or partition, but no dead letters. Returns their number. Raises NotFound."""
        known = await self.existing(queue)
        only = await self._catalogue.existing_partition(known, partition)
        cleared = await self._store.browse.clear(known.id, partition=only)
        self._scope.statistics.changed(known.id)
        return cleared

    async def leases(
        self,
        queue: str | None = None,
        *,
        group: str | None = None,
        ending_within: int | None = None,
        limit: int = 100,
    ) -> list[LeaseDetail]:
        """Return live leases, next to expire first, optionally only those that end within `ending_within` seconds."""
        queue = name_or_none("queue", queue)
        some = await self.all() if queue is None else [await self._store.queues.get(self._tenant, queue)]
        queues = {one.id: one.name for one in some if one is not None}
        now = await self._store.now()
        until = NEVER_AT if ending_within is None else now + ending_within * 1_000_000
        group = name_or_none("consumerGroup", group)
        found = await self._store.statistics.leases([*queues], group=group, ends_before=until, limit=limit)
        return [
            LeaseDetail(
                lease_id=str(one.lease_id),
                queue=queues[one.queue_id],
                partition=one.partition,
                partition_id=str(one.partition_id),
                consumer_group=one.consumer_group,
                leased_at=Moment(one.leased_at),
                expires_at=Moment(one.expires_at),
                seconds_held=max(0, now - one.leased_at) / 1e6,
                seconds_remaining=max(0, one.expires_at - now) / 1e6,
                messages=one.upto - one.first,
                completed=one.committed - one.first,
            )
            for one in found
        ]

    async def utilisation(self, queue: str) -> Utilisation:
        """Return how much of a queue its consumers hold, its depth, and its free capacity."""
        known = await self.existing(queue)
        counted = await self._scope.statistics.queue(known.id)
        depth, capacity = counted.unfinished, known.options.max_size or None
        groups = [
            GroupUse(
                consumer_group=one.group.name,
                partitions=one.lanes,
                partitions_with_messages=one.lagging,
                partitions_leased=one.leases,
                messages_leased=one.leased,
                pending=one.lag,
                oldest_at=moment_or_none(one.oldest_at),
                utilisation=one.leases / one.lagging if one.lagging else 0.0,
                blocked=one.blocked,
                parked=one.parked,
                paused=one.paused,
                retrying=one.retrying,
            )
            for one in await self._scope.statistics.groups_of(known.id)
        ]
        return Utilisation(
            queue=known.name,
            partitions=counted.partitions,
            depth=depth,
            capacity=capacity,
            remaining=None if capacity is None else max(0, capacity - depth),
            groups=groups,
            stats_age=max(self._scope.statistics.age_seconds(), self._scope.statistics.groups_age_seconds()),
        )


def partition_detail(one: PartitionStats) -> wire.PartitionDetail:
    newest = Moment(one.last_at) if one.head > one.start else None
    oldest = moment_or_none(one.oldest_at)
    return wire.PartitionDetail(
        id=str(one.id),
        name=one.name,
        created_at=Moment(one.created_at),
        stats=counts(one),
        oldest_message=oldest,
        newest_message=newest,
    )


def queue_head(queue: Queue) -> wire.QueueHead:
    return wire.QueueHead(
        id=str(queue.id),
        name=queue.name,
        namespace=queue.namespace,
        task=queue.task,
        created_at=Moment(queue.created_at),
    )


def queue_summary(queue: Queue, counted: QueueStats) -> wire.QueueSummary:
    head = asdict(queue_head(queue))
    return wire.QueueSummary(**head, partitions=counted.partitions, messages=counts(counted))
