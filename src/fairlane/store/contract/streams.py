"""The store contract of streams. What `contract.store` says of all verbs holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from fairlane.model.ids import PartitionId
from fairlane.model.stream import Registered, StateChange, StateFilter, StateRow, StreamQuery
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice


class Streams(Protocol):
    """Streams: queries over queues, and the state they keep for each partition."""

    async def register(self, tenant: str, query: StreamQuery, *, reset: bool) -> Registered:
        """The query of this name, made with the given id if it is new.

        With the same hash its queues are renewed and its state stays. With another hash and `reset` its state is
        dropped and the hash renewed; without `reset` nothing changes, and the hash returned is the old one."""
        ...

    async def get(self, tenant: str, id: UUID) -> StreamQuery | None: ...

    async def state(
        self, query_id: UUID, partition: PartitionId, where: StateFilter, *, limit: int = 1000
    ) -> list[StateRow]:
        """The first that match, by key in the order of its UTF-8 bytes."""
        ...

    async def cycle(
        self, change: StateChange, acks: Sequence[LaneAck], slices: Sequence[Slice]
    ) -> tuple[list[AckResult], list[PushResult]]:
        """`Messages.transact` with the change of state in the same transaction: all of it, or nothing.

        Cycles of one query and partition come one after another. NotFound if the query or the partition is gone,
        TransactionRefused if the change is for an idle group and that is not idle, or was not."""
        ...
