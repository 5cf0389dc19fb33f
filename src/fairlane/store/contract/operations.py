"""Values of operations between the broker and a store: new ones, claims of backlogs, and what applying them came to."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.operation import Operation, OperationType
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import AckResult, Full, Gone, LaneAck, Locked, PushResult, Slice, Stored

BACKLOGS_MAX = 50
"""Backlogs of one claim, unless it says otherwise."""
RUN_MAX = 100
"""Operations of one backlog in one claim."""
RUN_BYTES_MAX = 256 * 1024
FIRST = UUID(int=0)
"""Before all ids."""


class NewOperation(msgspec.Struct, kw_only=True):
    """An operation to be made. At most the `messages` of a push that one caller sent to one partition."""

    id: UUID
    type: OperationType
    partition: PartitionId
    queue_id: int
    options: QueueOptions
    tenant: str
    queue: str
    partition_name: str
    group: str = ""
    group_id: int = 0
    messages: int = 0
    payload: bytes
    created_at: int | None = None
    """When it was accepted, if that is some time ago: in a journal, or before it failed."""


class Enqueued(msgspec.Struct, frozen=True):
    """It is durable and will be applied. `position` counts the open operations of its backlog up to it; `depth` and
    `capacity` only with a `max_size`."""

    position: int
    depth: int | None = None
    capacity: int | None = None


EnqueueResult = Enqueued | Full | Gone | Locked


class BacklogClaim(msgspec.Struct, frozen=True):
    """The right to apply the oldest operations of a backlog, until its end or until another takes it after that."""

    partition: PartitionId
    group_id: int
    token: UUID


class ClaimedBacklog(msgspec.Struct):
    claim: BacklogClaim
    queue_id: int
    operations: list[Operation]
    """Oldest first, at least one."""


class Application(msgspec.Struct):
    """The first operations of a claimed backlog, by their sequences, and what they come to: new messages, an ack, or
    nothing."""

    claim: BacklogClaim
    sequences: list[int]
    messages: int
    """Of these operations in all; their places in the queue are free again when they are applied."""
    results: Callable[[Stored | AckResult | None], list[bytes]]
    """The result of each operation when they are applied. Called inside the transaction; it must not wait."""
    slice: Slice | None = None
    ack: LaneAck | None = None

    def applied_by(self, result: ApplyResult) -> bool:
        """Whether this result means that the operations are completed."""
        if isinstance(result, AckResult):
            nacks = self.ack.nacks if self.ack is not None and not self.ack.unordered else []
            return (result.state == "ok" or result.repeated) and all(nack.position >= result.before for nack in nacks)
        return isinstance(result, Stored | Closed)


class Lost(msgspec.Struct, frozen=True):
    """The claim is another's by now; nothing was applied."""


class Closed(msgspec.Struct, frozen=True):
    """Operations that came to nothing were completed."""


ApplyResult = PushResult | AckResult | Lost | Closed
