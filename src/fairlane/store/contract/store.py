"""The store contract. The docstrings are the specification; `tests/conformance` tests both stores against them.

Common to all verbs: times are microseconds since 1970 by the store's clock, never the caller's. Every verb is one
atomic step and durable when it returns. No exception of a driver leaves the store: StoreUnavailable means that it
cannot do this now, OutcomeUnknown that a commit may or may not have happened, after which every verb may be repeated.
Locks are taken in one order (queue row, partitions by id, cursors), so calls never deadlock each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, Self

from fairlane.errors import InvalidRequest
from fairlane.model.cell import CellStatus
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import RenewOutcome
from fairlane.model.queue import SAME_AS
from fairlane.model.segment import Segment
from fairlane.store.codec import Codec
from fairlane.store.contract.values import (
    AckResult,
    LaneAck,
    Leased,
    PopCall,
    PopResult,
    PushResult,
    Renewal,
    ScheduledSlice,
    Slice,
)
from fairlane.store.families.operations import Operations
from fairlane.store.families.registry import StoreFamilies
from fairlane.store.families.scheduled import ScheduledMessages
from fairlane.store.tail_cache import TailCache


class Messages(Protocol):
    """The log, and the leases on it."""

    def push(self, slices: Sequence[Slice]) -> Awaitable[list[PushResult]]:
        """Append each slice to its partition, completely or not at all. Returns the results in order.

        Position order in a partition is commit order, without gaps, and `created_at` never decreases. Slices of
        different partitions are independent, except that the slices of one call for one queue are stored only if all
        of them fit below its `max_size`. A slice is `Duplicates` if a given id was stored in the partition less than
        `dedup_seconds` ago, also by a concurrent call, and even if retention deleted its message. It is
        `OperationsAhead` if its partition has open operations. Empty lanes become ready.
        """
        ...

    def pop(self, call: PopCall) -> Awaitable[PopResult]:
        """Lease ready lanes, longest-ready first, each to the first claim that still wants one.

        A claim gets up to `batch` messages over all its lanes, in position order from the cursor of each lane, and
        about `bytes_max` bytes at most. If the last lease of a lane expired, its first message is charged one failed
        attempt with the error `Partition lease expired`, and the lane is delivered one message at a time until the
        cursor has passed the lost batch. A forgiving call charges nothing. A message without attempts left is
        dead-lettered instead of delivered, and deleted messages are skipped. Messages younger than `delay_seconds`, and
        lanes whose newest message is younger than `window_seconds`, are not delivered. A message that expired
        (`ttl_seconds`, `max_wait_seconds`) is dead-lettered with the error `expired`, or dropped and counted.
        """
        ...

    async def expire(self, queue_id: int, group_id: int) -> int:
        """Expire messages like a pop, in a bounded number of lanes that were not popped for long.

        Only visits lanes whose first message has certainly expired. Returns the number of messages, 0 when done.
        """
        ...

    async def expiring(self) -> list[tuple[int, int]]:
        """Return (queue, group) of all groups of queues whose messages expire, for all tenants."""
        ...

    def ack(self, acks: Sequence[LaneAck]) -> Awaitable[list[AckResult]]:
        """Apply each ack independently, in order. An ack with a stale token applies nothing.

        Exactly the named positions are finished. Positions at the cursor move it forward, never back, past positions
        that were finished ahead of it. Later positions are finished ahead and not delivered again. The lease is
        released when its batch is finished; until then the rest stays leased. A token must belong to the lane's live
        lease. Without a token only messages that the last lease of the lane included are finished (`limit`), and a
        lease whose batch is finished is released. A nack of an open message ends the lease; without a token, also the
        lease of another holder. A nack of a finished message is ignored, see `before` and `finished`. `dead_letters`
        dead-letters open positions in the same transaction.
        """
        ...

    async def ack_and_pop(self, acks: Sequence[LaneAck], call: PopCall) -> tuple[list[AckResult], PopResult]:
        """Apply acks like `ack` and then pop like `pop`, in one transaction.

        The acks are for lanes of the call's queue, and the pop may lease lanes that they release. An ack that is not
        applied changes nothing for the pop. After OutcomeUnknown both may be repeated, the pop with new tokens.
        """
        ...

    async def renew(self, renewals: Sequence[Renewal]) -> list[RenewOutcome]:
        """Extend every live lane of each lease to at least now + its seconds."""
        ...

    async def release(self, lease: LeaseId, *, partition: PartitionId | None = None) -> int:
        """Release live lanes of the lease, or one of them, without counting an attempt. Returns their number."""
        ...

    async def leased(self, lease: LeaseId) -> list[Leased]:
        """Return the lanes of the lease. Empty if it has ended."""
        ...

    async def read(self, partition: PartitionId, first: int, upto: int) -> list[Segment]:
        """Return the stored segments with positions `first` to `upto` - 1, in order."""
        ...

    async def find(self, partition: PartitionId, transaction_id: str, *, deleted: bool = False) -> int | None:
        """Return the position of the newest stored message with this id. None if it is unknown or deleted.

        With `deleted`, messages that retention deleted count while their id is remembered.
        """
        ...

    async def transact(
        self, acks: Sequence[LaneAck], slices: Sequence[Slice], scheduled: Sequence[ScheduledSlice] = ()
    ) -> tuple[list[AckResult], list[PushResult]]:
        """Apply all acks, then all slices, then `scheduled`, in one transaction: all of them or none.

        The second list has the results of the slices and then those of `scheduled`. Nothing is applied if an ack is
        not `ok` (or `repeated`), a nack or dead letter of an ack lies below the cursor, a slice is not `Stored`, or a
        scheduled one not `Added`. The results of the attempt then show the reason. Slices are not stored either if the
        acks are `only_repeats`, because an earlier attempt was applied and stored its own.
        """
        ...


class Store(StoreFamilies, ABC):
    """An open store."""

    kind: str
    """`sqlite` or `postgresql`."""
    messages: Messages
    operations: Operations
    scheduled: ScheduledMessages
    codec: Codec
    """Codec that seals data of encrypted queues and opens it. All verbs use it."""
    tail_cache: TailCache
    """Cache of the newest messages that this process pushed, shared by all cells."""
    id_time: Callable[[], int]
    """Function that returns milliseconds for new ids without I/O: the store's clock, or slightly before it."""

    @property
    @abstractmethod
    def sole_broker(self) -> bool:
        """True while no other broker is known to use this store, so that hints are needless."""

    @property
    def seals(self) -> bool:
        """Return True if messages of encrypted queues can be stored."""
        return self.codec.can_seal

    async def check_cell(self, tenant: str, cell: str) -> None:
        """Raise InvalidRequest if no queue can be created in this cell, which is given as the option of a queue."""
        if cell != "0" and not cell.startswith(SAME_AS):
            raise InvalidRequest(f"there is no cell {cell}: the store has cell 0 alone (`fairlane cluster add`)")

    async def check_home(self, id: int | PartitionId, what: str) -> None:
        """Raise InvalidRequest if a queue or a partition is not in the home.

        `what` names what works with queues of the home only. See `family`.
        """

    @abstractmethod
    async def now(self) -> int:
        """Return the time of the store's clock."""

    @abstractmethod
    async def check_health(self) -> None:
        """Commit a write without waiting for any lane. Raises StoreUnavailable if the store does not accept it."""

    async def cells(self) -> list[CellStatus]:
        """Return all cells with their contents. Those that do not answer have an error instead."""
        return [CellStatus(cell=0, schema="", node="", state="open")]

    def cell_health(self) -> dict[int, str]:
        """Return the reason why each cell does not answer. The reason is empty if it answers.

        Lists and totals leave out the queues of a cell that does not answer.
        """
        return {0: ""}

    @abstractmethod
    def flushes(self) -> int:
        """Return the number of concurrent pushes, acks or pops that are useful."""

    @abstractmethod
    def connections(self) -> tuple[int, int]:
        """Return the number of database connections, and how many are in use."""

    @abstractmethod
    async def report(self) -> dict[str, Any]:
        """Return facts about the database: sizes, caches, maintenance. For people; the keys differ between stores."""

    @abstractmethod
    def listen(self, wake: Callable[[int], None]) -> None:
        """Call `wake(queue_id)` soon after another broker stored messages or made lanes ready.

        This is best effort: a call may be late or lost.
        """

    @abstractmethod
    def hint(self, queue_id: int) -> None:
        """Notify other brokers that this one did so. Never blocks, never fails."""

    @abstractmethod
    async def close(self) -> None:
        """Finish pending work, then free all resources. Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
