"""Queues and partitions on PostgreSQL."""

from __future__ import annotations

import hashlib
from builtins import list as List  # the family has a verb of that name
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from fairlane.errors import Conflict, NotFound
from fairlane.model.ids import PartitionId
from fairlane.model.queue import (
    PRIORITY_SECONDS,
    TURNED,
    Partition,
    PartitionState,
    Queue,
    QueueOptions,
    labels_of,
    turns,
    without_priority,
)
from fairlane.store.postgres.connection import Database
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "queues.sql")
_PURGE_PARTITIONS = 200
CHANGES_KEPT = 1000
_TABLES = (
    *("segments", "message_keys", "cursors", "claims", "failures", "skips", "dead_letters", "results"),
    *("traced", "traces", "trace_names", "stream_state", "trims", "expiries"),
    *("bundle_messages", "bundle_keys", "bundles", "partitions"),
)
_decode_options = msgspec.json.Decoder(QueueOptions).decode


def _queue(row: asyncpg.Record) -> Queue:
    return Queue(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        namespace=row["namespace"],
        task=row["task"],
        options=_decode_options(row["options"]),
        created_at=row["created_at"],
    )


async def recount(connection: asyncpg.Connection[Any], shards: list[int], queue_id: int) -> None:
    """Count a limited queue's depth anew. The caller holds the queue's row, so that no push or ack moves it
    meanwhile."""
    depth = sum([await connection.fetchval(SQL["unfinished"], shard, queue_id) for shard in shards])
    await connection.execute(SQL["recount"], queue_id, depth)


class Queues:
    def __init__(self, database: Database, shards: list[int]) -> None:
        self._database = database
        self._shards = shards

    async def get(self, tenant: str, name: str) -> Queue | None:
        rows = await self._database.read(SQL["get"], tenant, name)
        return _queue(rows[0]) if rows else None

    async def list(self, tenant: str) -> List[Queue]:
        return [_queue(row) for row in await self._database.read(SQL["list"], tenant)]

    async def ensure(self, tenant: str, name: str) -> Queue:
        while True:
            if queue := await self.get(tenant, name):
                return queue
            options = msgspec.json.encode(QueueOptions()).decode()
            await self._database.write(SQL["ensure"], tenant, name, *labels_of(name), options, self._database.time())
            if not await self._database.read(SQL["tenant"], tenant):
                raise NotFound(f"there is no tenant {tenant!r}")

    async def configure(self, tenant: str, name: str, options: QueueOptions, *, namespace: str, task: str) -> Queue:
        await self.ensure(tenant, name)

        async def work(connection: asyncpg.Connection[Any]) -> bool:
            row = await connection.fetchrow(SQL["lock"], tenant, name)
            if row is None:
                return False
            if turns(_decode_options(row["options"]), options):
                for shard in self._shards:
                    if await connection.fetch(SQL["any_partition"], shard, row["id"]):
                        raise Conflict(TURNED)
            text = msgspec.json.encode(options).decode()
            await connection.execute(SQL["configure"], row["id"], text, namespace, task)
            if options.max_size > 0 and row["max_size"] == 0:
                for shard in self._shards:
                    ids = [record[0] for record in await connection.fetch(SQL["lock_partitions"], shard, row["id"])]
                    await connection.fetch(SQL["lock_cursors"], shard, ids)
                await recount(connection, self._shards, row["id"])
            if row["delay"] > options.delay_seconds or row["window"] > options.window_seconds:
                for shard in self._shards:
                    await connection.fetch(SQL["wake"], shard, row["id"], self._database.time())
            await self._changed(connection, row["id"])
            return True

        while not await self._database.transact(work):
            await self.ensure(tenant, name)
        queue = await self.get(tenant, name)
        if queue is None:
            raise NotFound(f"queue {name!r} was deleted while it was configured")
        return queue

    async def delete(self, tenant: str, name: str) -> bool:
        async def work(connection: asyncpg.Connection[Any]) -> bool:
            row = await connection.fetchrow(SQL["lock"], tenant, name)
            if row is None:
                return False
            await connection.execute(SQL["delete"], row["id"])
            await connection.execute(SQL["delete_groups"], row["id"])
            await connection.execute(SQL["delete_data_keys"], row["id"])
            await connection.execute(SQL["to_purge"], row["id"])
            await self._changed(connection, row["id"])
            return True

        existed = await self._database.transact(work)
        await self.purge()
        return existed

    async def _changed(self, connection: asyncpg.Connection[Any], queue_id: int) -> None:
        """Last in a transaction: until its commit other changes wait, so that versions rise in commit order."""
        version = await connection.fetchval(SQL["next_version"])
        await connection.execute(SQL["changed"], version, queue_id)
        await connection.execute(SQL["forget_changes"], version - CHANGES_KEPT)

    async def changes(self, since: int) -> tuple[int, List[int] | None]:
        [row] = await self._database.read(SQL["version"], since)
        version, found = row["version"], row["queue_ids"]
        return version, found if len(found) == version - since else None

    async def purge(self) -> None:
        """Remove the rows of deleted queues, also of those that a broker which died was removing."""
        for row in await self._database.read(SQL["purges"]):
            for shard in self._shards:
                more = True
                while more:
                    more = await self._purge_some(shard, row["queue_id"])
            await self._database.write(SQL["purged"], row["queue_id"])

    async def _purge_some(self, shard: int, queue_id: int) -> bool:
        async def work(connection: asyncpg.Connection[Any]) -> bool:
            rows = await connection.fetch(SQL["to_purge_partitions"], shard, queue_id, _PURGE_PARTITIONS)
            ids = [row["id"] for row in rows]
            for table in _TABLES:
                await connection.execute(SQL[f"purge_{table}"], shard, ids)
            return bool(ids)

        return await self._database.transact(work)

    async def born(self, queue_id: int, names: Sequence[str]) -> List[Partition]:
        by_shard: dict[int, set[str]] = defaultdict(set)
        for name in names:
            by_shard[self._shard_of(queue_id, name)].add(name)
        found: dict[str, Partition] = {}
        for shard in sorted(by_shard):
            rows = await self._database.write(
                SQL["born"], shard, queue_id, sorted(by_shard[shard]), self._database.time()
            )
            for row in rows:
                found[row["name"]] = Partition(PartitionId(shard, row["id"]), queue_id, row["name"], row["unordered"])
        if len(found) < len(set(names)):
            raise NotFound(f"queue {queue_id} is not there (any more)")
        return [found[name] for name in names]

    def _shard_of(self, queue_id: int, name: str) -> int:
        # Lanes of one partition that differ in priority are neighbours, so that one claim sees them all.
        digest = hashlib.blake2b(f"{queue_id}/{without_priority(name)}".encode(), digest_size=8).digest()
        return self._shards[int.from_bytes(digest, "big") % len(self._shards)]

    async def rank(self, partition: PartitionId, priority: int) -> bool:
        seconds = priority * PRIORITY_SECONDS
        [[there]] = await self._database.write(SQL["rank"], *partition, seconds, self._database.time())
        return bool(there)

    async def partition(self, id: PartitionId) -> Partition | None:
        rows = await self._database.read(SQL["partition"], id.shard, id.id)
        return Partition(id, rows[0]["queue_id"], rows[0]["name"], rows[0]["unordered"]) if rows else None

    async def named(self, queue_id: int, name: str) -> Partition | None:
        shard = self._shard_of(queue_id, name)
        rows = await self._database.read(SQL["named"], shard, queue_id, name)
        return Partition(PartitionId(shard, rows[0]["id"]), queue_id, name, rows[0]["unordered"]) if rows else None

    async def partitions(self, queue_id: int, *, after: str = "", limit: int = 1000) -> List[PartitionState]:
        rows = await self._database.read(SQL["partitions"], self._shards, queue_id, after, limit)
        return [
            PartitionState(
                id=PartitionId(row["shard"], row["id"]),
                name=row["name"],
                start=row["start"],
                head=row["head"],
                last_at=row["last_at"],
                created_at=row["created_at"],
            )
            for row in rows
        ]

    async def depth(self, queue_id: int) -> int:
        rows = await self._database.read(SQL["depth"], queue_id)
        if not rows:
            raise NotFound(f"queue {queue_id} is not there (any more)")
        if rows[0]["max_size"] > 0:
            return int(rows[0]["depth"])
        return sum([(await self._database.read(SQL["unfinished"], shard, queue_id))[0][0] for shard in self._shards])
