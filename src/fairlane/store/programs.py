"""The store contract: what the programs of users keep: streams, workers, sources, effects. What `store.base` says
of all verbs holds."""

from __future__ import annotations

from builtins import list as List  # a family has a verb of that name
from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from fairlane.model.ids import PartitionId
from fairlane.model.source import Source, SourceStep
from fairlane.model.stream import Registered, StateChange, StateFilter, StateRow, StreamQuery
from fairlane.store.values import (
    PushResult,
    Settled,
    Settlement,
    Slice,
    Verdicts,
)


class Streams(Protocol):
    """Queries over queues, and the state they keep for each partition."""

    async def register(self, tenant: str, query: StreamQuery, *, reset: bool) -> Registered:
        """The query of this name, made with the given id if it is new.

        With the same hash its queues are renewed and its state stays. With another hash and `reset` its state is
        dropped and the hash renewed; without `reset` nothing changes, and the hash returned is the old one."""
        ...

    async def get(self, tenant: str, id: UUID) -> StreamQuery | None: ...

    async def state(
        self, query_id: UUID, partition: PartitionId, where: StateFilter, *, limit: int = 1000
    ) -> List[StateRow]:
        """The first that match, by key in the order of its UTF-8 bytes."""
        ...

    async def cycle(
        self, change: StateChange, settlements: Sequence[Settlement | Verdicts], slices: Sequence[Slice]
    ) -> tuple[List[Settled], List[PushResult]]:
        """`Messages.transact` with the change of state in the same transaction: all of it, or nothing.

        Cycles of one query and partition come one after another. NotFound if the query or the partition is gone,
        TransactionRefused if the change is for an idle group and that is not idle, or was not."""
        ...


class Seen(NamedTuple):
    """A worker, what it said last, and when."""

    id: str
    facts: str
    seen_at: int


class Workers(Protocol):
    """Workers that told of themselves."""

    async def beat(self, tenant: str, id: str, facts: str, *, keep_seconds: int) -> None:
        """A worker is alive and does this; those that were not for so long are forgotten."""
        ...

    async def list(self, tenant: str, *, seconds: int) -> List[Seen]:
        """Those that were alive in the last seconds, by id."""
        ...

    async def leave(self, tenant: str, id: str) -> bool:
        """A worker ended; False if it was not known."""
        ...


class Sources(Protocol):
    """How far the records of sources were read, who reads them, and what is known of each record.

    Nothing is changed but by `commit`, which makes another revision: what was read of a source and its records is
    true for as long as it has the revision that it had then."""

    async def lease(self, tenant: str, name: str, *, seconds: int) -> Source | None:
        """The source, made if it is not there, under a lease with a token greater than every token before it; None
        while another has a lease."""
        ...

    async def keep(self, tenant: str, name: str, token: int, *, seconds: int) -> Source | None:
        """Let the lease end so many seconds from now; None if it ended, or there is a newer one."""
        ...

    async def release(self, tenant: str, name: str, token: int) -> bool:
        """Let the lease end now; False if it ended before."""
        ...

    async def get(self, tenant: str, name: str) -> Source | None: ...

    async def list(self, tenant: str) -> List[Source]:
        """By name."""
        ...

    async def delete(self, tenant: str, name: str) -> bool:
        """Forget it with all that is known of its records; False if it was not there."""
        ...

    async def known(self, source_id: int, keys: Sequence[str]) -> dict[str, str]:
        """The hashes of those of these records that are known."""
        ...

    async def unseen(self, source_id: int, sweep: int, *, limit: int) -> List[str]:
        """Keys of records that were last seen before this sweep."""
        ...

    async def commit(
        self, step: SourceStep, settlements: Sequence[Settlement | Verdicts], slices: Sequence[Slice]
    ) -> tuple[List[Settled], List[PushResult]]:
        """`Messages.transact` and the step in the same transaction: all of it, or nothing. Conflict if the source has
        another revision by now, LeaseLost if the token is not that of a live lease."""
        ...


class Effects(Protocol):
    """What handlers did once for messages of a partition: each under a key, and for a time."""

    async def get(self, tenant: str, key: str, partition: PartitionId) -> bytes | None: ...

    async def keep(self, tenant: str, key: str, partition: PartitionId, effect: bytes, *, seconds: int) -> bytes:
        """Keep an effect, unless there is one under this key; the one that is kept. Those whose time is over go, some
        with each call."""
        ...
