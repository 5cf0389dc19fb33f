"""The contract of operations, which were accepted and are not applied yet. What `contract.store` says of
all verbs holds here.

A backlog is of a partition (its pushes) or of a lane (its acks). It is applied in order, one
claim at a time. The partition's row counts its open pushes: while there are any, no other push of it is stored, so that
"are there operations" and "store it or make it one" are one decision under one lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.operation import Operation, OperationBacklog, OperationCount, OperationStatus, OperationType
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.values import (
    AckResult,
    Full,
    Gone,
    LaneAck,
    Locked,
    PushResult,
    Slice,
    Stored,
)

BACKLOGS_MAX = 50
"""Backlogs of one claim, unless it says otherwise."""
RUN_MAX = 100
"""Operations of one backlog in one claim."""
RUN_BYTES_MAX = 256 * 1024
FIRST = UUID(int=0)
"""Before all ids."""
PAGES = {"pending": "page_open", "processing": "page_open", "failed": "page_failed"}
"""Statements by which a page of this status is found without walking over all others."""


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


class AppliedOperation(msgspec.Struct, kw_only=True):
    """An operation of a broker's journal that was applied from there."""

    id: UUID
    type: OperationType
    partition: PartitionId
    tenant: str
    queue: str
    partition_name: str
    group: str = ""
    messages: int
    created_at: int
    result: bytes

    @property
    def sequence(self) -> int:
        """Its place among the others of its partition: below zero, where no other is. The last half of a
        UUIDv7 begins with a one."""
        return int.from_bytes(self.id.bytes[8:], "big", signed=True)


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


class Operations(Protocol):
    """Operations, from their acceptance until an hour after their end."""

    async def enqueue(self, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        """Append each to its backlog, or say why not; one result each, in order.

        A push takes the places of its messages in a limited queue, or is Full. An id that is there already
        changes nothing, so that the call may be repeated."""
        ...

    async def claim(
        self, worker: str, *, backlogs: int = BACKLOGS_MAX, token: UUID | None = None
    ) -> list[ClaimedBacklog]:
        """The oldest operations of backlogs that are not claimed, best priority first, then longest-ready first; each
        backlog to one worker. A claim ends after TIMEOUT_SECONDS, or with `apply`, `postpone` or `fail`. `token` is
        what all of them are known by, also if the answer is lost."""
        ...

    async def give_back(self, token: UUID) -> int:
        """Give back the backlogs that are still claimed under a token; they are ready at once. How many."""
        ...

    async def apply(self, work: Sequence[Application]) -> list[ApplyResult]:
        """Apply and complete claimed operations, in one step that is fenced by the claim; each backlog by itself.

        Lost when the claim is another's. Duplicates, Full and Gone (see `Messages.push`), and Settled with a lost
        lease or a nack that came too late, apply nothing and leave the claim as it is. Who is applied gives the claim
        back, and what is left of the backlog is ready at once."""
        ...

    async def postpone(self, claims: Sequence[BacklogClaim], *, delay_ms: int, error: str) -> int:
        """Give backlogs back unapplied; they are ready after the delay. How many were still claimed."""
        ...

    async def fail(self, claim: BacklogClaim, sequences: Sequence[int], error: str, *, delay_ms: int) -> int:
        """Charge a permanent error to the first operations of a claimed backlog and give the backlog back; how many
        were given up on. Those are `failed`, stay whole, give their places back, and the backlog goes on after them."""
        ...

    async def record(self, applied: Sequence[AppliedOperation]) -> None:
        """Let operations of a journal be looked up here, as completed now. An id that is there already is
        left as it is, so that the call may be repeated."""
        ...

    async def get(self, tenant: str, id: UUID) -> Operation | None: ...

    async def page(
        self,
        tenant: str,
        *,
        status: OperationStatus | None = None,
        queue: str | None = None,
        after: UUID = FIRST,
        limit: int = 100,
    ) -> list[Operation]:
        """Operations whose id is greater than `after`, by id: about the order in which they were accepted. Without
        their payloads."""
        ...

    async def retry(self, tenant: str, id: UUID, anew: NewOperation) -> EnqueueResult | None:
        """Put a failed operation at the end of the backlog that `anew` names, with its id and the time of its
        acceptance; None if it is not `failed`."""
        ...

    async def discard(self, tenant: str, id: UUID) -> bool:
        """Give up an operation that is pending or failed, for good; False if it is neither."""
        ...

    async def failed(self, tenant: str) -> int:
        """How many failed, and nobody decided yet."""
        ...

    async def depth(self) -> int:
        """How many are open, from the counters of the backlogs."""
        ...

    async def counts(self, tenant: str) -> list[OperationCount]:
        """By type and status; completed ones as far as they ended in the last five minutes."""
        ...

    async def backlogs(self, tenant: str, *, limit: int = 100) -> list[OperationBacklog]:
        """Backlogs with open operations, deepest first."""
        ...

    async def clean(self, *, older_than_seconds: int, failed_seconds: int = 0, limit: int = 10_000) -> int:
        """Remove up to `limit` that were completed or discarded so long ago, and as many that failed so long ago
        (0: none of those); how many."""
        ...
