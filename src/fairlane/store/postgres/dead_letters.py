"""Dead letters on PostgreSQL."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections.abc import Sequence
from functools import partial
from typing import Any

import asyncpg
import msgspec

from fairlane.errors import LaneWaiting, NotFound, QueueFull
from fairlane.model.ids import PartitionId, id_key, uuid7, uuid7_ms
from fairlane.model.message import PushItem
from fairlane.model.outcome import DeadLetter
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import pack, unpack
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import Messages
from fairlane.store.sealed.vault import Vault
from fairlane.store.statements import load
from fairlane.store.values import Behind, DeadFilter, Full, Gone, Slice

SQL = load("fairlane.store.postgres", "dead_letters.sql")
_KEY = ("partition_id", "group_id", "position")


def _where(queue_id: int, where: DeadFilter) -> tuple[object, ...]:
    partition = where.partition.id if where.partition else None
    return (queue_id, where.group, partition, where.ids, where.failed_from, where.failed_until, where.replayed)


def _dead_letter(row: asyncpg.Record) -> DeadLetter:
    fields = dict(row)
    del fields["id"]
    return DeadLetter(partition=PartitionId(fields.pop("shard"), fields.pop("partition_id")), **fields)


class DeadLetters:
    def __init__(self, database: Database, shards: list[int], messages: Messages) -> None:
        self._database = database
        self._shards = shards
        self._messages = messages
        self.vault: Vault | None = None

    def _route(self, where: DeadFilter) -> List[int]:
        return [where.partition.shard] if where.partition else self._shards

    async def list(
        self, queue_id: int, where: DeadFilter, *, limit: int = 100, before: tuple[int, str] | None = None
    ) -> List[DeadLetter]:
        at, id = before or (None, None)
        found: list[DeadLetter] = []
        for shard in self._route(where):
            rows = await self._database.read(SQL["list"], shard, *_where(queue_id, where), at, id, limit)
            found += map(_dead_letter, rows)
        found.sort(key=lambda letter: (letter.failed_at, letter.id), reverse=True)
        return found[:limit]

    async def get(self, queue_id: int, id: str) -> DeadLetter | None:
        found = await self.list(queue_id, DeadFilter(ids=[id]), limit=1)
        return found[0] if found else None

    async def count(self, queue_id: int, where: DeadFilter) -> int:
        counts = [
            await self._database.read(SQL["count"], shard, *_where(queue_id, where)) for shard in self._route(where)
        ]
        return sum(rows[0][0] for rows in counts)

    async def replay(self, queue_id: int, where: DeadFilter, *, limit: int = 1000) -> List[tuple[str, str]]:
        where = msgspec.structs.replace(where, replayed=False)
        return await self._database.transact(partial(self._replay, queue_id=queue_id, where=where, limit=limit))

    async def _replay(
        self, connection: asyncpg.Connection[Any], *, queue_id: int, where: DeadFilter, limit: int
    ) -> List[tuple[str, str]]:
        text = await connection.fetchval(SQL["options"], queue_id)
        if text is None:
            return []
        options = msgspec.json.decode(text, type=QueueOptions)
        rows: list[asyncpg.Record] = []
        for shard in self._route(where):
            rows += await connection.fetch(SQL["oldest"], shard, *_where(queue_id, where), limit)
        rows = sorted(rows, key=lambda row: (row["failed_at"], row["position"]))[:limit]
        slices: dict[PartitionId, Slice] = {}
        for row in rows:
            home = PartitionId(row["shard"], row["partition_id"])
            slices.setdefault(home, Slice(home, queue_id, options, [], [], [], [], []))
        await self._messages.lock(connection, [], list(slices.values()))
        free = await self._still_dead(connection, rows)
        replayed = [
            (row, _again(slices[PartitionId(row["shard"], row["partition_id"])], row["message"], self.vault))
            for row in rows
            if row["id"] in free
        ]
        await self._append(connection, [part for part in slices.values() if part.fragments])
        for shard in sorted({row["shard"] for row, _ in replayed}):
            some = [(row, id) for row, id in replayed if row["shard"] == shard]
            columns = [[row[name] for row, _ in some] for name in _KEY]
            ids = [id for _, id in some]
            await connection.execute(SQL["replayed"], shard, *columns, ids, self._database.time())
        return [(row["id"], id) for row, id in replayed]

    async def _still_dead(self, connection: asyncpg.Connection[Any], rows: Sequence[asyncpg.Record]) -> set[str]:
        """Lock the letters; the ids of those that nobody replayed meanwhile."""
        free: set[str] = set()
        for shard in sorted({row["shard"] for row in rows}):
            columns = [[row[name] for row in rows if row["shard"] == shard] for name in _KEY]
            for key in await connection.fetch(SQL["lock"], shard, *columns):
                free.add("-".join(map(str, (shard, *key))))
        return free

    async def _append(self, connection: asyncpg.Connection[Any], slices: Sequence[Slice]) -> None:
        for shard in sorted({part.partition.shard for part in slices}):
            some = sorted((part for part in slices if part.partition.shard == shard), key=lambda part: part.partition)
            for result in await self._messages.push_shard(connection.fetch, shard, some):
                if isinstance(result, Full):
                    raise QueueFull(
                        f"the replay does not fit: {result.depth} of {result.capacity} places are taken",
                        depth=result.depth,
                        capacity=result.capacity,
                    )
                if isinstance(result, Behind):
                    raise LaneWaiting(
                        "operations wait in a partition of these dead letters; try again when they are done"
                    )
                if isinstance(result, Gone):
                    raise NotFound("the queue of these dead letters is not there (any more)")

    async def purge(self, queue_id: int, where: DeadFilter, *, limit: int = 1000) -> int:
        purged = 0
        for shard in self._route(where):
            rows = await self._database.read(SQL["oldest"], shard, *_where(queue_id, where), limit - purged)
            keys = [[row[name] for row in rows] for name in _KEY]
            await self._database.write(SQL["purge"], shard, *keys)
            purged += len(rows)
            if purged >= limit:
                break
        return purged


def _again(part: Slice, message: bytes, vault: Vault | None) -> str:
    """Add a dead letter's message to a slice, as a new message; its id."""
    clear = vault.open(part.partition, message) if vault else message
    old = unpack(clear, position=0, created_at=0)
    item = PushItem(
        queue="",
        payload=old.data,
        trace_id=old.trace_id,
        type=old.type,
        headers={**(old.headers or {}), "replay-of": old.transaction_id},
    )
    id = uuid7()
    fragment = pack(id, id, item)
    if vault and vault.is_prepared(part.queue_id):
        fragment = vault.seal(part.queue_id, part.partition, fragment)
    part.fragments.append(fragment)
    part.transaction_ids.append(id)
    part.keys.append(id_key(id))
    part.id_times.append(uuid7_ms(id) or 0)
    part.given.append(False)
    return id
