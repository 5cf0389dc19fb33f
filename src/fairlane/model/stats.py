"""Statistics: what queues, partitions and groups hold, in numbers that come from heads and cursors."""

from __future__ import annotations

import msgspec

from fairlane.model.group import Group
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Messages by where they stand. `pending` + `leased` is what some group has not finished."""

    total: int
    """Retained, deleted ones left out."""
    unfinished: int
    """Not finished by every group; all retained ones while there is no group."""
    leased: int
    """In consumers' hands now; of several groups the one that holds most of a partition counts."""
    failed: int
    """Failed attempts that are not passed yet: each message comes again."""
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
    """When the last message came; None if none ever did."""


class PartitionStats(Counts, frozen=True, kw_only=True):
    """A partition's log at one moment: positions `start` to `head` - 1 are retained."""

    id: PartitionId
    name: str
    start: int
    head: int
    created_at: int
    last_at: int
    oldest_at: int | None
    """When the first retained message came, None without one."""


class GroupStats(msgspec.Struct, frozen=True, kw_only=True):
    """A group over all partitions of its queue."""

    group: Group
    lanes: int
    """Partitions with a cursor of this group."""
    lagging: int
    """Lanes with something to read."""
    lag: int
    """Messages it has not finished."""
    oldest_at: int | None
    """When the oldest of them came."""
    finished: int
    """Positions it has passed since the queue began."""
    leases: int
    """Lanes leased now."""
    leased: int
    """Messages in them."""
    dead: int
    """Messages it gave up on, ever."""
    losing: int
    """Lanes with a message whose lease ran out again and again, and did so last."""
    taken_at: int | None
    """When somebody took a message last, as far as its lanes tell."""

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
    """The standing of one group in one partition."""

    partition: PartitionId
    group: str
    committed: int
    leased_until: int | None
    """The position up to which a live lease reaches, None without one."""
    lease_ends_at: int | None
    ahead: list[int] = []
    """Positions of an ordered queue that were finished ahead of the cursor."""

    def has_finished(self, position: int) -> bool:
        return position < self.committed or position in self.ahead

    def holds(self, position: int) -> bool:
        """Whether the message is in the hands of a consumer."""
        return self.leased_until is not None and position < self.leased_until and not self.has_finished(position)


class ActiveLease(msgspec.Struct, frozen=True, kw_only=True):
    """A live lease in one partition: positions `first` to `upto` - 1, of which those below `committed` are done."""

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
    """A lane that nobody gets anything of until somebody acts."""

    queue_id: int
    group: str
    partition: str
    parked: bool
    """Otherwise it is blocked by its first message."""
    error: str | None
    failed_at: int | None
