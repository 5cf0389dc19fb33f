"""The store contract. The docstrings are the specification; `tests/conformance` holds both stores to them.

Common to all: times are microseconds since 1970 by the store's clock, never the caller's. Every verb is
one atomic step and durable when it returns. A driver's exception never leaves: what the store cannot do now
is StoreUnavailable, a commit whose fate is not known is OutcomeUnknown, and every verb may be repeated after it.
Locks are taken in one order (queue row, partitions by id, cursors), so calls never deadlock each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from builtins import list as List  # the family has a verb of that name
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, Self

from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import RenewOutcome
from fairlane.model.segment import Segment
from fairlane.store.codec import Codec
from fairlane.store.contract.values import AckResult, LaneAck, Leased, PopCall, PopResult, PushResult, Renewal, Slice
from fairlane.store.families.all import Families
from fairlane.store.families.operations import Operations
from fairlane.store.families.scheduled import ScheduledMessages


class Messages(Protocol):
    """The log, and the leases on it."""

    def push(self, slices: Sequence[Slice]) -> Awaitable[List[PushResult]]:
        """Append each slice to its partition, all of it or nothing, and say which, in order.

        Position order in a partition is commit order, without gaps; `created_at` never falls. Slices of different
        partitions do not depend on each other, except that the slices of one call for one queue fit below
        its `max_size` together or none of them is stored. A given id that was stored in the partition less than
        `dedup_seconds` ago (also by a concurrent call, and though retention deleted its message) makes its slice
        `Duplicates`. With open operations it is `OperationsAhead`. Lanes that were empty become ready."""
        ...

    def pop(self, call: PopCall) -> Awaitable[PopResult]:
        """Lease ready lanes, longest-ready first, each to the first claim that still wants one.

        A claim gets messages up to its batch over all its lanes, in position order from the lane's cursor, and at
        most about `bytes_max` of them. A lane whose last lease ran out is charged one failed attempt of its first
        message with the error `Partition lease expired`; then it is delivered one message at a time until the
        cursor has passed the lost batch. A forgiving call charges nothing. A message whose attempts are used up is
        dead-lettered instead of delivered, and one that was deleted is stepped over. What the queue's options keep
        back is not delivered: messages younger than `delay_seconds`, and lanes whose newest is younger than
        `window_seconds`. A message that expired (`ttl_seconds`, `max_wait_seconds`) is dead-lettered with the error
        `expired`, or dropped and counted, instead of delivered."""
        ...

    async def expire(self, queue_id: int, group_id: int) -> int:
        """Do what a pop would do with expired messages, in a bounded number of lanes that nobody has asked for
        for so long that their first message is expired for sure; how many there were, 0 when all is done."""
        ...

    async def expiring(self) -> List[tuple[int, int]]:
        """(queue, group) of all groups of queues whose messages expire, of all tenants."""
        ...

    def ack(self, acks: Sequence[LaneAck]) -> Awaitable[List[AckResult]]:
        """Apply each ack by itself, in order; a stale token applies nothing.

        What is said to be finished is, and nothing else: from the cursor on it moves the cursor, never back, and over
        what was finished ahead of it; behind it, it is finished ahead and comes no more. At the end of the leased batch
        the lease is released, before it the rest stays leased. With a token: it must be the lane's live lease. Without
        one only what the last lease of the lane was given is finished (`limit`); a lease whose batch is finished by it
        is released. A nack of a message that is open ends the lease, also of another holder when it comes without a
        token; of one that is finished it is ignored (`before` and `finished` tell). `dead_letters` gives up positions
        that are open, in the same transaction."""
        ...

    async def renew(self, renewals: Sequence[Renewal]) -> List[RenewOutcome]:
        """Let every live lane of each lease end no earlier than now + its seconds."""
        ...

    async def release(self, lease: LeaseId, *, partition: PartitionId | None = None) -> int:
        """Give live lanes of the lease (or the one named) back at once, without charge; how many."""
        ...

    async def leased(self, lease: LeaseId) -> List[Leased]:
        """What the lease covers now; empty when it ended."""
        ...

    async def read(self, partition: PartitionId, first: int, upto: int) -> List[Segment]:
        """The segments that hold positions `first` to `upto` - 1 as far as they are stored, in order."""
        ...

    async def find(self, partition: PartitionId, transaction_id: str, *, deleted: bool = False) -> int | None:
        """The position of the newest stored message with this id, None if it is not known (any more) or deleted. With
        `deleted` one that retention deleted counts too, while its id is known."""
        ...

    async def transact(
        self, acks: Sequence[LaneAck], slices: Sequence[Slice]
    ) -> tuple[list[AckResult], list[PushResult]]:
        """All acks, then all slices, in one transaction: every one applied, or none.

        Nothing is applied when an ack is not `ok` (or `repeated`), an ack's nack or dead letter lies below
        the cursor, or a slice is not `Stored`; the results then say which, and are those of the attempt. Nor is a slice
        stored beside acks that are `only_repeats`: an earlier try was applied, and stored its own."""
        ...


class Store(Families, ABC):
    """A store, open."""

    kind: str
    """`sqlite` or `postgresql`."""
    messages: Messages
    operations: Operations
    scheduled: ScheduledMessages
    codec: Codec
    """Seals what is written for encrypted queues, and opens what is read; all verbs call it."""
    id_time: Callable[[], int]
    """Milliseconds for new ids, known without asking: at or a little before the store's clock."""

    @property
    @abstractmethod
    def alone(self) -> bool:
        """No other broker has this store open, as far as is known now: there is nobody to tell."""

    @property
    def seals(self) -> bool:
        """Whether messages of encrypted queues can be stored."""
        return self.codec.can_seal

    @abstractmethod
    async def now(self) -> int:
        """The store's clock."""

    @abstractmethod
    async def answer(self) -> None:
        """Commit a write, waiting for no lane and for no other call where calls do not wait for each other anyway.
        Raises StoreUnavailable if the store does not take it."""

    @abstractmethod
    def flushes(self) -> int:
        """How many pushes (or acks, or pops) may usefully run at once."""

    @abstractmethod
    def connections(self) -> tuple[int, int]:
        """How many connections to the database there are, and how many of them are at work."""

    @abstractmethod
    async def report(self) -> dict[str, Any]:
        """What the database says of itself: sizes, caches, upkeep. For people; the keys differ between stores."""

    @abstractmethod
    def listen(self, wake: Callable[[int], None]) -> None:
        """Call `wake(queue_id)` soon after another broker stored messages or made lanes ready. A hint: it may be
        late or lost."""

    @abstractmethod
    def hint(self, queue_id: int) -> None:
        """Tell other brokers that this one did. Never blocks, never fails."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what was handed over, then let go of everything. Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
