"""Staged messages, which programs enqueue in their own transactions on PostgreSQL, until a broker moves them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol

from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId
from fairlane.model.moment import Moment
from fairlane.store.contract.values import Added, Duplicates, Gone, PartitionLocked, PushResult, ScheduledSlice, Slice
from fairlane.store.families.query import Family

COUNTED_MAX: Final = 100_000
"""Largest number of staged messages of a queue that is counted."""
NOT_HERE: Final = (
    "messages can be enqueued in your own transactions only on PostgreSQL: an SQLite file is open to its broker alone; "
    "push with a client instead, or use PostgreSQL"
)


class StagedMessage(NamedTuple):
    """A message as a program enqueued it."""

    tenant_id: int
    tenant: str
    queue: str
    bucket: int
    """Hash of its partition. Messages of a bucket are moved in the order of their ids."""
    id: int
    partition: str
    transaction_id: str
    given: bool
    """True if the program named the transactionId, so that it may be a duplicate."""
    type: str | None
    headers: str | None
    """Headers as JSON."""
    deliver_at: int | None
    priority: int | None
    max_attempts: int | None
    payload: bytes

    @property
    def whole_bucket(self) -> StagedBucket:
        return StagedBucket(self.tenant_id, self.queue, self.bucket)


class StagedBucket(NamedTuple):
    """A bucket of a queue."""

    tenant_id: int = 0
    queue: str = ""
    bucket: int = -1


class Waiting(NamedTuple):
    """A partition whose staged messages wait, or a whole queue if `partition` is empty."""

    tenant_id: int
    queue: str
    partition: str = ""


class StagedQueue(NamedTuple):
    """Staged messages of a queue."""

    tenant: str
    queue: str
    messages: int
    """Their number, at most COUNTED_MAX."""
    oldest_at: Moment


class StagedSigns(NamedTuple):
    """Tells if there are staged messages, or may be soon."""

    waiting: bool = False
    """True if any message is staged."""
    granted: bool = False
    """True if any role may enqueue messages, so that some may come at any time."""


class EnqueueGrant(NamedTuple):
    """A permission of a database role to enqueue messages and to complete them. An empty `queue` stands for all."""

    role: str
    tenant: str
    queue: str


class Move(Protocol):
    """A transaction that moves `messages`. No other broker has them until it ends."""

    messages: list[StagedMessage]

    async def lock(self, slices: Sequence[Slice]) -> None:
        """Lock the partitions of all slices that will be pushed or scheduled, before the first of them."""
        ...

    async def push(self, slices: Sequence[Slice]) -> list[PushResult]: ...

    async def schedule(self, parts: Sequence[ScheduledSlice]) -> list[Added | Duplicates | Gone | PartitionLocked]: ...

    async def refuse(self, queue_id: int, partition: PartitionId, position: int, error: str) -> None:
        """Make a message that this transaction pushed a dead letter of every group, which nobody receives."""
        ...


class Staged(Family):
    """The staged messages of a store. SQLite never has any, because no other program may write its file."""

    supported = False

    async def check(self) -> StagedSigns:
        return StagedSigns()

    async def move(
        self,
        work: Callable[[Move], Awaitable[Collection[StagedMessage]]],
        *,
        after: StagedBucket,
        waiting: Sequence[Waiting],
        limit: int,
    ) -> int:
        """Run `work` with up to `limit` staged messages behind a bucket, and delete those it returns, all or nothing.

        `work` may run more than once. It gets the messages of a bucket in the order of their ids and each bucket at
        one broker at a time, without those of `waiting`. Returns the number of deleted messages. A partition that is
        locked is reported as `PartitionLocked`.
        """
        return 0

    async def by_queue(self, tenant: str | None = None) -> list[StagedQueue]:
        """Return the queues with staged messages, of a tenant or of all."""
        return []

    async def grant(self, role: str, tenant: str, queue: str) -> None:
        """Allow a database role to enqueue into a queue, or into all queues of a tenant if `queue` is empty.

        Raises NotFound if there is no such role or tenant.
        """
        raise InvalidRequest(NOT_HERE)

    async def revoke(self, role: str, tenant: str, queue: str) -> bool:
        """Undo a grant. Returns False if there is none."""
        raise InvalidRequest(NOT_HERE)

    async def grants(self) -> list[EnqueueGrant]:
        return []

    async def publish_sealed(self, patterns: Sequence[str]) -> None:
        """Note the patterns of queues that this broker always encrypts, so that nothing is staged for them in clear."""
