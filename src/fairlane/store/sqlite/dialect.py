"""The steps of families on SQLite, in Python."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

import apsw
import msgspec

from fairlane.model.group import Seek, Subscription
from fairlane.model.retention import Expired
from fairlane.store.families.dialect import Dialect
from fairlane.store.families.query import Row
from fairlane.store.sqlite import browse, cancellations, groups, limits, operations, queues, retention, scheduled

T = TypeVar("T")


class RunStep(Protocol):
    """Runs a function with the database and the time: as a read, a write, or inside a transaction."""

    def __call__(self, step: Callable[[apsw.Connection, int], T], /) -> Awaitable[T]: ...


class SqliteDialect(Dialect):
    def __init__(self, run: RunStep) -> None:
        self._run = run

    async def newest_messages(
        self, ids: Sequence[int], until: Sequence[int], below: Sequence[int], *, since: int, limit: int, bytes: int
    ) -> list[Row]:
        bounds = list(zip(ids, until, below, strict=True))
        return await self._run(lambda db, now: browse.newest(db, bounds, since=since, limit=limit, bytes=bytes))

    async def messages_with_id(
        self,
        queue_ids: Sequence[int],
        partition_ids: Sequence[int] | None,
        transaction_id: str,
        keys: Sequence[int],
        since: int | None,
        until: int | None,
    ) -> list[Row]:
        return await self._run(lambda db, now: browse.with_id(db, queue_ids, partition_ids, transaction_id, since))

    async def delete_message(self, partition_id: int, position: int, transaction_id: str) -> bool:
        return await self._run(lambda db, now: browse.delete(db, now, partition_id, position, transaction_id))

    async def dead_letter_message(self, partition_id: int, group_id: int, position: int, error: str) -> str | None:
        return await self._run(lambda db, now: browse.dead_letter(db, now, partition_id, group_id, position, error))

    async def limit_state(self, group_id: int, key: str) -> list[Row]:
        found = await self._run(lambda db, now: limits.state(db, now, group_id, key))
        return [] if found is None else [msgspec.structs.astuple(found)]

    async def cancel_message(self, partition_id: int, group_id: int, position: int) -> list[Row]:
        return await self._run(lambda db, now: cancellations.cancel(db, now, partition_id, group_id, position))

    async def trim(self, limit: int) -> bool:
        return await self._run(lambda db, now: browse.trim(db, now, limit))

    async def forget_ids(self, limit: int) -> int:
        return await self._run(lambda db, now: browse.forget_ids(db, now, limit))

    async def subscribe(self, queue_id: int, name: str, subscription: Subscription, limit: int) -> list[Row]:
        return await self._run(lambda db, now: groups.subscribe(db, now, queue_id, name, subscription, limit))

    async def seed_group(self, group_id: int, limit: int) -> bool:
        return await self._run(lambda db, now: groups.seed(db, now, group_id, limit))

    async def seek(self, queue_id: int, group_id: int, partition_id: int, seek: Seek) -> int:
        return await self._run(lambda db, now: groups.seek(db, now, queue_id, group_id, partition_id, seek))

    async def preview_seek(self, queue_id: int, group_id: int, seek: Seek, limit: int) -> list[Row]:
        return await self._run(lambda db, now: groups.preview_seek(db, queue_id, group_id, seek, limit))

    async def resume_lanes(self, group_id: int, partition_id: int) -> int:
        return await self._run(lambda db, now: groups.resume_lanes(db, now, group_id, partition_id))

    async def ensure_partitions(self, queue_ids: Sequence[int], names: Sequence[str], *, make: bool) -> list[Row]:
        return await self._run(lambda db, now: queues.ensure_partitions(db, now, queue_ids, names, make=make))

    async def purge_queue(self, queue_id: int) -> bool:
        return await self._run(lambda db, now: queues.purge(db, queue_id))

    async def count_unfinished(self, queue_id: int) -> int:
        return await self._run(lambda db, now: groups.unfinished(db, queue_id))

    async def claim_operations(
        self, worker: str, token: UUID, *, backlogs: int, run: int, bytes: int, seconds: int
    ) -> list[Row]:
        return await self._run(
            lambda db, now: operations.claim(db, now, worker, token, backlogs=backlogs, run=run, bytes=bytes)
        )

    async def expire_messages(self, limit: int) -> tuple[list[Expired], int]:
        return await self._run(lambda db, now: retention.expire(db, now, limit))

    async def is_scheduled(self, partition_id: int, transaction_id: bytes, keys: Sequence[int], id_ms: int) -> bool:
        return await self._run(lambda db, now: scheduled.contains(db, partition_id, transaction_id, keys, id_ms))

    async def change_scheduled(
        self,
        partition_id: int,
        transaction_id: bytes,
        keys: Sequence[int],
        id_ms: int,
        new_id: UUID,
        *,
        move: bool,
        due_at: int | None,
        delay_ms: int,
    ) -> int | None:
        def change(db: apsw.Connection, now: int) -> int | None:
            at = now + delay_ms * 1000 if due_at is None else due_at
            return scheduled.change(db, partition_id, transaction_id, keys, id_ms, move=move, at=at)

        return await self._run(change)
