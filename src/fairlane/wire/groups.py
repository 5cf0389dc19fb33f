"""Consumer groups on the wire."""

from __future__ import annotations

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
    """Messages it has not finished."""
    max_time_lag: float
    """Seconds since the oldest of them came."""
    state: str
    subscription_mode: str
    subscription_timestamp: Moment | None
    subscription_created_at: Moment
    look: bool = False
    """Made by a person's look; no consumer has popped for it."""


class GroupListQuery(ListQuery):
    """`search` also finds the queues of groups."""

    sort: Literal["name", "queue", "lag", "oldest"] = "lag"
    queue: str | None = None
    looks: bool = False
    """Also groups that a person's look made."""


class GroupPage(Answer):
    groups: list[GroupSummary]
    total: int
    """How many there are like that, on all pages."""
    lagging: int
    """Groups that have messages to read. This and what follows are of all groups."""
    to_read: int
    oldest_seconds: float
    stats_age: int
    """Seconds since this was counted; 0 unless there are very many partitions."""


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
    """Failed attempts of the message that comes next."""
    error: str | None
    next_try_at: Moment | None
    """When the lane may be taken next; null while there is nothing to read."""
    dead_letters: int
    expired: int
    """Messages that were dropped because they were too old."""
    stopped: str | None = msgspec.field(name="halted")
    """paused, blocked or parked; null if the lane is not stopped."""


class QueueLanes(Answer):
    partitions: list[LaneView]


class DeleteGroupQuery(Body):
    delete_metadata: bool = True
    """false keeps the subscription: the group begins anew where that says."""


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
    """The target of a seek: exactly one of these."""

    to_end: bool = False
    to_beginning: bool = False
    timestamp: Moment | None = None
    """The first message created at or after this."""
    position: int | None = None


class SeekQuery(SeekBody):
    """The same target, to look at."""


class SeekPreview(Answer):
    """The effect that a seek would have now."""

    consumer_group: str
    queue_name: str
    partitions: int
    """Those that were looked at."""
    again: int
    """Messages that the group has finished and would get again."""
    skipped: int
    """Messages that it has not finished and would not get."""
    complete: bool
    """False if there are more partitions than were looked at."""


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
    """When the message came that is delivered next; null at the end."""
    position: int | None
