"""Groups: list, seek, delete."""

from __future__ import annotations

from fairlane.broker.cells import check_complete
from fairlane.broker.paging import page_of
from fairlane.broker.resource import Resource
from fairlane.errors import NotFound
from fairlane.model.group import Group, LaneState, Seek, SeekTarget, Subscription
from fairlane.model.limits import COUNT_MAX, NEVER_AT
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import QUEUE_MODE, check_count, check_name
from fairlane.model.principal import ANYBODY, Principal
from fairlane.model.queue import Queue
from fairlane.model.stats import GroupStats
from fairlane.wire.groups import (
    GroupListQuery,
    GroupPage,
    GroupSummary,
    LaggingEntry,
    LaneView,
    QueueLanes,
    SeekPreview,
)

_LAGGING_SECONDS = 300
_LANES_MAX = 1000
_PREVIEWED_MAX = 10_000


class Groups(Resource):
    async def exists(self, queue: str, group: str) -> bool:
        found = await self._catalogue.queue(self._tenant, check_name("queue", queue), make=False)
        return found is not None and await self._catalogue.group_id(found.id, group) is not None

    async def summaries(self) -> list[GroupSummary]:
        """Return the groups of all queues with their lag."""
        now = await self._store.now()
        return [_summary(queue, counted, now) for queue, counted in await self._scope.statistics.groups()]

    async def page(self, query: GroupListQuery, caller: Principal = ANYBODY) -> GroupPage:
        """Return a page of the groups that the caller may see, with totals."""
        now, every = await self._store.now(), await self._scope.statistics.groups()
        groups = [one for one in every if caller.allows("status", one[0].name)]
        shown, total = page_of(
            [
                (queue, one)
                for queue, one in groups
                if query.queue in (None, queue.name) and (query.looks or not one.group.subscription.look)
            ],
            query,
            text=lambda one: f"{one[1].group.name} {one[0].name}",
            up={
                "name": lambda one: (one[1].group.name, one[0].name),
                "queue": lambda one: (one[0].name, one[1].group.name),
            },
            down={"lag": lambda one: one[1].lag, "oldest": lambda one: -(one[1].oldest_at or NEVER_AT)},
        )
        oldest = [one.oldest_at for _, one in groups if one.oldest_at is not None]
        return GroupPage(
            groups=[_summary(queue, one, now) for queue, one in shown],
            total=total,
            lagging=sum(one.lagging > 0 for _, one in groups),
            to_read=sum(one.lag for _, one in groups),
            oldest_seconds=_seconds(now, min(oldest, default=None)),
            stats_age=self._scope.statistics.groups_age_seconds(),
        )

    async def summary(self, queue: str, group: str) -> GroupSummary:
        """Return one group of one queue. Raises NotFound."""
        there, now = await self._catalogue.existing(self._tenant, queue), await self._store.now()
        for one in await self._scope.statistics.groups_of(there.id):
            if one.group.name == group:
                return _summary(there, one, now)
        raise NotFound("Consumer group not found")

    async def lagging(self, min_lag_seconds: float) -> list[LaggingEntry]:
        """Return lanes whose oldest unfinished message is older than this, oldest first."""
        now = await self._store.now()
        queues = {queue.id: queue.name for queue in await self._store.queues.all(self._tenant)}
        before = now - int(max(0.0, min(min_lag_seconds, 1e9)) * 1e6)
        lanes = await self._store.statistics.lagging(list(queues), oldest_before=before)
        return [
            LaggingEntry(
                consumer_group=lane.consumer_group,
                queue_name=queues[lane.queue_id],
                partition_name=lane.partition_name,
                partition_id=str(lane.partition_id),
                offset_lag=lane.offset_lag,
                time_lag_seconds=(lag := _seconds(now, lane.oldest_unconsumed_at)),
                lag_hours=round(lag / 3600, 2),
                oldest_unconsumed_at=Moment(lane.oldest_unconsumed_at),
            )
            for lane in lanes
        ]

    async def show(self, name: str) -> dict[str, QueueLanes]:
        """Return the lanes of a group, by queue. Raises NotFound."""
        now, found = await self._store.now(), {}
        for queue, group in await self._everywhere(name):
            lanes = await self._store.groups.lanes(group.id, limit=_LANES_MAX)
            found[queue.name] = QueueLanes(partitions=[_lane(lane, now) for lane in lanes])
        if not found:
            raise NotFound("Consumer group not found")
        return found

    async def _everywhere(self, name: str) -> list[tuple[Queue, Group]]:
        """Return the group in every queue that has it."""
        queues = {queue.id: queue for queue in await self._scope.statistics.listed()}
        groups = await self._store.groups.by_name(self._tenant, check_name("group", name))
        return sorted(((queues[one.queue_id], one) for one in groups if one.queue_id in queues), key=_by_queue)

    async def all(self, queue: str) -> list[Group]:
        return await self._store.groups.all((await self._catalogue.existing(self._tenant, queue)).id)

    async def lanes(self, queue: str, group: str = QUEUE_MODE, *, limit: int = 1000) -> list[LaneState]:
        check_count("limit", limit, least=1, most=COUNT_MAX)
        return await self._store.groups.lanes((await self._existing(queue, group)).id, limit=limit)

    async def seek(self, queue: str, group: str, seek: SeekTarget, *, partition: str | None = None) -> int:
        """Seek a group to the beginning, the end, a time or a position. Returns the number of moved lanes."""
        seek = Seek.of(seek)
        there = await self._catalogue.existing(self._tenant, queue)
        found = await self._catalogue.existing_group(there, group)
        lane = await self._catalogue.existing_partition(there, partition)
        moved = await self._store.groups.seek(found.id, seek, partition=lane)
        self._scope.statistics.changed(found.queue_id)
        self._engine.announcer.announce(found.queue_id, moved)
        return moved

    async def preview_seek(self, queue: str, group: str, seek: SeekTarget) -> SeekPreview:
        """Return the effect that a seek would have now, for as many partitions as can be checked quickly."""
        seek = Seek.of(seek)
        there = await self._catalogue.existing(self._tenant, queue)
        found = await self._catalogue.existing_group(there, group)
        partitions, again, skipped = await self._store.groups.preview_seek(found.id, seek, limit=_PREVIEWED_MAX)
        return SeekPreview(
            consumer_group=group,
            queue_name=queue,
            partitions=partitions,
            again=again,
            skipped=skipped,
            complete=partitions < _PREVIEWED_MAX,
        )

    async def lane(self, queue: str, group: str, partition: str) -> LaneState | None:
        """Return the state of a group in one partition. None if it has not begun to read it. Raises NotFound."""
        found = await self._existing(queue, group)
        named = await self._store.queues.named(found.queue_id, check_name("partition", partition))
        lanes = await self._store.groups.lanes(found.id, partition=named.id) if named else []
        return lanes[0] if lanes else None

    async def delete(self, queue: str, group: str) -> int:
        """Delete a group of a queue with its positions. Returns the number of lanes. Raises NotFound."""
        return await self._delete(await self._existing(queue, group), keep_subscription=False)

    async def forget(self, name: str, *, queue: str | None = None, keep_subscription: bool = False) -> int:
        """Delete a group in one queue or in all. An unknown group counts as deleted.

        With `keep_subscription`, a new group starts where the subscription says.
        """
        if queue is None:
            groups = [group for _, group in await self._everywhere(name)]
            check_complete(self._store)
        else:
            there = await self._catalogue.existing(self._tenant, queue)
            found = await self._store.groups.get(there.id, check_name("group", name))
            groups = [] if found is None else [found]
        return sum([await self._delete(group, keep_subscription=keep_subscription) for group in groups])

    async def _delete(self, group: Group, *, keep_subscription: bool) -> int:
        deleted = await self._store.groups.delete(group.id, keep_subscription=keep_subscription)
        self._scope.statistics.changed(group.queue_id)
        self._catalogue.forget_group(group.queue_id, group.name)
        self._engine.tenants.recount(self._tenant)
        return deleted

    async def resubscribe(self, name: str, at: int) -> int:
        """Start a group at this time in partitions that it has not read yet. Returns the number of queues."""
        subscription = Subscription("time", at)
        groups = await self._everywhere(name)
        check_complete(self._store)
        return sum([await self._store.groups.resubscribe(group.id, subscription) for _, group in groups])

    async def _existing(self, queue: str, name: str) -> Group:
        found = await self._catalogue.existing(self._tenant, queue)
        return await self._catalogue.existing_group(found, name)


def _by_queue(one: tuple[Queue, Group]) -> str:
    return one[0].name


def _summary(queue: Queue, counted: GroupStats, now: int) -> GroupSummary:
    group = counted.group
    lag = _seconds(now, counted.oldest_at)
    busy = "Stable" if counted.finished or counted.leases else "Dead"
    return GroupSummary(
        name=group.name,
        topics=[queue.name],
        queue=queue.name,
        members=counted.lanes,
        partitions_with_lag=counted.lagging,
        total_lag=counted.lag,
        max_time_lag=lag,
        state="Lagging" if lag > _LAGGING_SECONDS else busy,
        subscription_mode=group.subscription.mode,
        subscription_timestamp=moment_or_none(group.subscription.start),
        subscription_created_at=Moment(group.created_at),
        look=group.subscription.look,
    )


def _lane(lane: LaneState, now: int) -> LaneView:
    return LaneView(
        partition=lane.name,
        partition_id=str(lane.partition),
        total_consumed=lane.committed,
        offset_lag=lane.head - lane.committed - lane.skipped,
        time_lag_seconds=_seconds(now, lane.oldest_at),
        lease_active=lane.leased_until is not None,
        lease_expires_at=moment_or_none(lane.lease_ends_at),
        attempts=lane.attempts,
        error=lane.error,
        next_try_at=moment_or_none(lane.ready_at),
        dead_letters=lane.dead,
        expired=lane.expired,
        stopped=lane.stopped,
    )


def _seconds(now: int, at: int | None) -> float:
    return max(0, now - at) / 1e6 if at is not None else 0.0
