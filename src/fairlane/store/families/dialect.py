"""Steps of families that each dialect implements: a function of PostgreSQL, Python on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from fairlane.model.group import Seek, Subscription
from fairlane.model.retention import Expired
from fairlane.store.families.query import Row


class Dialect(Protocol):
    """Steps inside one read, write or transaction.

    `store.sqlite.dialect` and `store.postgres.dialect` implement them. The family methods that call them document what
    they do.
    """

    async def newest_messages(
        self, ids: Sequence[int], until: Sequence[int], below: Sequence[int], *, since: int, limit: int, bytes: int
    ) -> list[Row]: ...

    async def messages_with_id(
        self,
        queue_ids: Sequence[int],
        partition_ids: Sequence[int] | None,
        transaction_id: str,
        keys: Sequence[int],
        since: int | None,
        until: int | None,
    ) -> list[Row]: ...

    async def delete_message(self, partition_id: int, position: int, transaction_id: str) -> bool: ...

    async def dead_letter_message(self, partition_id: int, group_id: int, position: int, error: str) -> str | None: ...

    async def limit_state(self, group_id: int, key: str) -> list[Row]: ...

    async def cancel_message(self, partition_id: int, group_id: int, position: int) -> list[Row]: ...

    async def trim(self, limit: int) -> bool: ...

    async def forget_ids(self, limit: int) -> int: ...

    async def subscribe(self, queue_id: int, name: str, subscription: Subscription, limit: int) -> list[Row]: ...

    async def seed_group(self, group_id: int, limit: int) -> bool: ...

    async def seek(self, queue_id: int, group_id: int, partition_id: int, seek: Seek) -> int: ...

    async def preview_seek(self, queue_id: int, group_id: int, seek: Seek, limit: int) -> list[Row]: ...

    async def resume_lanes(self, group_id: int, partition_id: int) -> int: ...

    async def ensure_partitions(self, queue_ids: Sequence[int], names: Sequence[str], *, make: bool) -> list[Row]: ...

    async def purge_queue(self, queue_id: int) -> bool: ...

    async def count_unfinished(self, queue_id: int) -> int: ...

    async def claim_operations(
        self, worker: str, token: UUID, *, backlogs: int, run: int, bytes: int, seconds: int
    ) -> list[Row]: ...

    async def expire_messages(self, limit: int) -> tuple[list[Expired], int]: ...

    async def is_scheduled(self, partition_id: int, transaction_id: bytes, keys: Sequence[int], id_ms: int) -> bool: ...

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
    ) -> int | None: ...
