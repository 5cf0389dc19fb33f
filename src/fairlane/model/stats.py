"""Statistics of queues, partitions and groups, computed from heads and cursors."""

from __future__ import annotations

from typing import Final

import msgspec

from fairlane.model.group import Group
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId

LANE_STATES: Final = ("blocked", "parked", "paused", "retrying")
"""States of lanes that need attention. A lane is in at most one of them."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Messages by state. `pending` + `leased` messages are unfinished by some group."""

    total: int
    """Retained messages, without deleted ones."""
    unfinished: int
    """Messages that some group has not finished. All retained messages if there is no group."""
    leased: int
    """Messages that consumers hold now. For several groups, the largest number in each partition."""
    failed: int
    """Failed attempts of messages that will be retried."""
    dead: int
    """Dead letters that were not replayed."""

    @property
    def pending(self) -> int:
        return max(0, self.unfinished - self.leased)

    @property
    def completed(self) -> int:
        return max(0, self.total - self.unfinished - self.dead)


class QueueStats(Counts, frozen=True, kw_only=True):
    queue_id: int
    partitions: int
    last_at: int | None
    """Time of the last message. None if there was none."""


class PartitionStats(Counts, frozen=True, kw_only=True):
    """A partition's log at one moment. Positions `start` to `head` - 1 are retained."""

    id: PartitionId
    name: str
    start: int
    head: int
    created_at: int
    last_at: int
    oldest_at: int | None
    """Time of the first retained message. None without one."""


class GroupStats(msgspec.Struct, frozen=True, kw_only=True):
    """A group over all partitions of its queue."""

    group: Group
    lanes: int
    """Partitions with a cursor of this group."""
    lagging: int
    """Lanes with messages to read."""
    lag: int
    """Messages that the group has not finished."""
    oldest_at: int | None
    """Time of the oldest of them."""
    finished: int
    """Positions that the group has passed since the queue was created."""
    leases: int
    """Lanes that are leased now."""
    leased: int
    """Messages in leased lanes."""
    dead: int
    """Messages that the group has dead-lettered, ever."""
    losing: int
    """Lanes with a message whose lease expired repeatedly, the last time included."""
    blocked: int
    """Lanes with a message that has used up its attempts, and that stops the lane."""
    parked: int
    """Parked lanes: set aside with a message that has used up its attempts, or by an operator."""
    paused: int
    """Lanes whose partition is paused."""
    retrying: int
    """Other lanes with a message that failed and will be delivered again."""
    taken_at: int | None
    """Time of the last pop of a message, from the records of its lanes."""

    @property
    def group_id(self) -> int:
        return self.group.id


class LaggingLane(msgspec.Struct, frozen=True, kw_only=True):
    queue_id: int
    consumer_group: str
    partition_id: PartitionId
    partition_name: str
    offset_lag: int
    oldest_unconsumed_at: int
    lease_ends_at: int | None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one group in one partition."""

    partition: PartitionId
    group: str
    committed: int
    leased_until: int | None
    """Position up to which a live lease reaches. None without one."""
    lease_ends_at: int | None
    ahead: list[int] = []
    """Positions of an ordered queue that were finished ahead of the cursor."""

    def has_finished(self, position: int) -> bool:
        return position < self.committed or position in self.ahead

    def holds(self, position: int) -> bool:
        """Return True if a consumer holds the message."""
        return self.leased_until is not None and position < self.leased_until and not self.has_finished(position)


class ActiveLease(msgspec.Struct, frozen=True, kw_only=True):
    """A live lease in one partition: positions `first` to `upto` - 1. Those below `committed` are done."""

    queue_id: int
    consumer_group: str
    partition_id: PartitionId
    partition: str
    lease_id: LeaseId
    first: int
    upto: int
    committed: int
    leased_at: int
    expires_at: int


class StoppedLane(msgspec.Struct, frozen=True, kw_only=True):
    """A lane that delivers nothing until someone intervenes."""

    queue_id: int
    group: str
    partition: str
    parked: bool
    """True if the lane is parked. Otherwise its first message blocks it."""
    error: str | None
    failed_at: int | None
