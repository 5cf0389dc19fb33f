"""Shapes of consumer groups."""

from __future__ import annotations

import msgspec

from fairlane.http.wire_queues import Wire
from fairlane.model.group import LaneState
from fairlane.model.moment import timestamp, timestamp_or_none
from fairlane.model.queue import Queue
from fairlane.model.stats import GroupStats, LaggingLane

_LAGGING_SECONDS = 300


class GroupEntry(Wire, rename="camel", kw_only=True):
    """A group of one queue."""

    name: str
    topics: list[str]
    queue_name: str
    members: int
    """Partitions with a cursor of this group."""
    partitions_with_lag: int
    total_lag: int
    """Messages it has not finished."""
    max_time_lag: float
    """Seconds since the oldest of them came."""
    state: str
    subscription_mode: str
    subscription_timestamp: str | None
    subscription_created_at: str
    look: bool = False
    """Made by a person's look; no consumer has popped for it."""


class LaggingQuery(Wire, rename="camel", kw_only=True):
    min_lag_seconds: float = 3600


class LaggingEntry(msgspec.Struct, kw_only=True):
    consumer_group: str
    queue_name: str
    partition_name: str
    partition_id: str
    worker_id: str | None = None
    offset_lag: int
    time_lag_seconds: float
    lag_hours: float
    oldest_unconsumed_at: str
    last_consumed_at: str | None = None


class LaneView(Wire, rename="camel", kw_only=True):
    partition: str
    partition_id: str
    worker_id: str | None = None
    last_consumed_at: str | None = None
    total_consumed: int
    offset_lag: int
    time_lag_seconds: float
    lease_active: bool
    lease_expires_at: str | None
    attempts: int
    """Failed attempts of the message that comes next."""
    error: str | None
    next_try_at: str | None
    """When the lane may be taken next; null while there is nothing to read."""
    dead_letters: int
    expired: int
    """Messages that were dropped because they were too old."""
    stopped: str | None = msgspec.field(name="halted")
    """paused, blocked or parked; null if the lane is not stopped."""


class QueueLanes(Wire, rename="camel", kw_only=True):
    partitions: list[LaneView]


class DeleteGroupQuery(Wire, rename="camel", kw_only=True):
    delete_metadata: bool = True
    """false keeps the subscription: the group begins anew where that says."""


class DeletedGroup(Wire, rename="camel", kw_only=True):
    success: bool
    consumer_group: str
    deleted_partitions: int
    metadata_deleted: bool
    queue_name: str | None = None


class SubscriptionBody(Wire, rename="camel", kw_only=True):
    subscription_timestamp: str


class UpdatedSubscription(Wire, rename="camel", kw_only=True):
    success: bool
    consumer_group: str
    new_timestamp: str
    rows_updated: int


class SeekBody(Wire, rename="camel", kw_only=True):
    """The target of a seek: exactly one of these."""

    to_end: bool = False
    to_beginning: bool = False
    timestamp: str | None = None
    """The first message created at or after this."""
    position: int | None = None


class SoughtGroup(Wire, rename="camel", kw_only=True):
    success: bool
    consumer_group: str
    queue_name: str
    seek_to_end: bool
    target_timestamp: str | None
    partitions_updated: int


class SoughtPartition(Wire, rename="camel", kw_only=True):
    success: bool
    consumer_group: str
    queue_name: str
    partition_name: str
    updated: bool
    cursor_moved_to: str | None
    """When the message came that is delivered next; null at the end."""
    position: int | None


def group_out(queue: Queue, counted: GroupStats, now: int) -> GroupEntry:
    group = counted.group
    lag = _seconds(now, counted.oldest_at)
    busy = "Stable" if counted.finished or counted.leases else "Dead"
    return GroupEntry(
        name=group.name,
        topics=[queue.name],
        queue_name=queue.name,
        members=counted.lanes,
        partitions_with_lag=counted.lagging,
        total_lag=counted.lag,
        max_time_lag=lag,
        state="Lagging" if lag > _LAGGING_SECONDS else busy,
        subscription_mode=group.subscription.mode,
        subscription_timestamp=timestamp_or_none(group.subscription.from_at),
        subscription_created_at=timestamp(group.created_at),
        look=group.subscription.look,
    )


def _seconds(now: int, at: int | None) -> float:
    return max(0, now - at) / 1e6 if at is not None else 0.0


def lagging_out(lane: LaggingLane, queue: str, now: int) -> LaggingEntry:
    lag = _seconds(now, lane.oldest_at)
    return LaggingEntry(
        consumer_group=lane.group,
        queue_name=queue,
        partition_name=lane.partition_name,
        partition_id=str(lane.partition),
        offset_lag=lane.lag,
        time_lag_seconds=lag,
        lag_hours=round(lag / 3600, 2),
        oldest_unconsumed_at=timestamp(lane.oldest_at),
    )


def lane_out(lane: LaneState, now: int) -> LaneView:
    return LaneView(
        partition=lane.name,
        partition_id=str(lane.partition),
        total_consumed=lane.committed,
        offset_lag=lane.head - lane.committed - lane.skipped,
        time_lag_seconds=_seconds(now, lane.oldest_at),
        lease_active=lane.leased_until is not None,
        lease_expires_at=timestamp_or_none(lane.lease_ends_at),
        attempts=lane.attempts,
        error=lane.error,
        next_try_at=timestamp_or_none(lane.ready_at),
        dead_letters=lane.dead,
        expired=lane.expired,
        stopped=lane.stopped,
    )
