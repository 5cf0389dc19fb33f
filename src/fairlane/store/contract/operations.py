"""Values of operations between the broker and a store: new ones, claims of backlogs, and results."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.operation import Operation, OperationType
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import AckResult, Full, Gone, LaneAck, PartitionLocked, PushResult, Slice, Stored

BACKLOGS_MAX = 50
"""Default number of backlogs in one claim."""
RUN_MAX = 100
"""Operations of one backlog in one claim."""
RUN_BYTES_MAX = 256 * 1024
FIRST = UUID(int=0)
"""Id before all others."""
LAST = UUID(int=2**128 - 1)
"""Id after all others."""


class NewOperation(msgspec.Struct, kw_only=True):
    """An operation to create: an ack, or messages of a push by one caller to one partition."""

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
    """Time of acceptance, if it was earlier: in a journal, or before it failed."""


class Enqueued(msgspec.Struct, frozen=True):
    """A durable operation that will be applied.

    `position` counts the open operations of its backlog up to it. `depth` and `capacity` are set only with a
    `max_size`.
    """

    position: int
    depth: int | None = None
    capacity: int | None = None


EnqueueResult = Enqueued | Full | Gone | PartitionLocked


class BacklogClaim(msgspec.Struct, frozen=True):
    """The right to apply the oldest operations of a backlog. After its end another broker may take it over."""

    partition: PartitionId
    group_id: int
    token: UUID


class ClaimedBacklog(msgspec.Struct):
    claim: BacklogClaim
    queue_id: int
    operations: list[Operation]
    """Operations, oldest first, at least one."""


class Application(msgspec.Struct):
    """The first operations of a claimed backlog, by their sequences, and their effect: messages, an ack, or nothing."""

    claim: BacklogClaim
    sequences: list[int]
    messages: int
    """Messages of these operations. Their capacity in the queue is freed when they are applied."""
    results: Callable[[Stored | AckResult | None], list[bytes]]
    """Function that returns the result of each applied operation. It is called in the transaction and must not wait."""
    slice: Slice | None = None
    ack: LaneAck | None = None

    def applied_by(self, result: ApplyResult) -> bool:
        """Return True if this result completes the operations."""
        if isinstance(result, AckResult):
            nacks = self.ack.nacks if self.ack is not None and not self.ack.unordered else []
            return (result.state == "ok" or result.repeated) and all(nack.position >= result.before for nack in nacks)
        return isinstance(result, Stored | Closed)


class Lost(msgspec.Struct, frozen=True):
    """The claim belongs to another broker now. Nothing was applied."""


class Closed(msgspec.Struct, frozen=True):
    """Operations without an effect were completed."""


ApplyResult = PushResult | AckResult | Lost | Closed
