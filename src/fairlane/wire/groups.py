"""Consumer groups on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, ListQuery


class GroupSummary(Answer):
    """A group of one queue."""

    name: str
    topics: list[str]
    queue: str = msgspec.field(name="queueName")
    members: int
    """Partitions with a cursor of this group."""
    partitions_with_lag: int
    total_lag: int
    """Messages that the group has not finished."""
    max_time_lag: float
    """Seconds since the oldest of them was pushed."""
    state: str
    subscription_mode: str
    subscription_timestamp: Moment | None
    subscription_created_at: Moment
    look: bool = False
    """True if a person created the group by looking, and no consumer has popped for it."""


class GroupListQuery(ListQuery):
    """A page of the list of groups. `search` also matches their queues."""

    sort: Literal["name", "queue", "lag", "oldest"] = "lag"
    queue: str | None = None
    looks: bool = False
    """True to include groups that a person created by looking."""


class GroupPage(Answer):
    groups: list[GroupSummary]
    total: int
    """Number of matching groups on all pages."""
    lagging: int
    """Number of groups with messages to read. This and the following fields count all groups."""
    to_read: int
    oldest_seconds: float
    stats_age: int
    """Seconds since this was counted. 0 unless there are very many partitions."""

    def __iter__(self) -> Iterator[GroupSummary]:
        return iter(self.groups)


class LaggingQuery(Body):
    min_lag_seconds: float = 3600


class LaggingEntry(Answer, rename=None):
    consumer_group: str
    queue_name: str
    partition_name: str
    partition_id: str
    worker_id: None = None
    offset_lag: int
    time_lag_seconds: float
    lag_hours: float
    oldest_unconsumed_at: Moment
    last_consumed_at: None = None


class LaneView(Answer):
    partition: str
    partition_id: str
    worker_id: None = None
    last_consumed_at: None = None
    total_consumed: int
    offset_lag: int
    time_lag_seconds: float
    lease_active: bool
    lease_expires_at: Moment | None
    attempts: int
    """Failed attempts of the next message."""
    error: str | None
    next_try_at: Moment | None
    """Earliest time of the next claim. Null if there is nothing to read."""
    dead_letters: int
    expired: int
    """Messages that expired."""
    stopped: str | None = msgspec.field(name="halted")
    """`paused`, `blocked` or `parked`. Null if the lane is not stopped."""


class QueueLanes(Answer):
    partitions: list[LaneView]


class DeleteGroupQuery(Body):
    delete_metadata: bool = True
    """False to keep the subscription, so that a new group starts where it says."""


class DeletedGroup(Answer):
    success: bool = True
    consumer_group: str
    deleted_partitions: int
    metadata_deleted: bool
    queue_name: str | None = None


class SubscriptionBody(Body):
    subscription_timestamp: Moment


class UpdatedSubscription(Answer):
    success: bool = True
    consumer_group: str
    new_timestamp: Moment
    rows_updated: int


class SeekBody(Body, omit_defaults=True):
    """Target of a seek. Exactly one field must be set."""

    to_end: bool = False
    to_beginning: bool = False
    timestamp: Moment | None = None
    """Time of the first message to read."""
    position: int | None = None


class SeekQuery(SeekBody):
    """Target of a seek to preview."""


class SeekPreview(Answer):
    """The effect that a seek would have now."""

    consumer_group: str
    queue_name: str
    partitions: int
    """Partitions that were checked."""
    again: int
    """Finished messages that the group would get again."""
    skipped: int
    """Unfinished messages that the group would skip."""
    complete: bool
    """False if there are more partitions than were checked."""


class SoughtGroup(Answer):
    success: bool = True
    consumer_group: str
    queue_name: str
    seek_to_end: bool
    target_timestamp: Moment | None
    partitions_updated: int


class SoughtPartition(Answer):
    success: bool = True
    consumer_group: str
    queue_name: str
    partition_name: str
    updated: bool
    cursor_moved_to: Moment | None
    """Time of the next message to deliver. Null if there is none."""
    position: int | None
