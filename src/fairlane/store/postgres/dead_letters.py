"""Dead letters on PostgreSQL."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections.abc import Sequence
from functools import partial
from typing import Any

import asyncpg
import msgspec

from fairlane.errors import NotFound, QueueFull
from fairlane.model.idempotency import replay_headers
from fairlane.model.ids import PartitionId, id_key, uuid7, uuid7_ms
from fairlane.model.message import PushItem
from fairlane.model.outcome import DeadLetter
from fairlane.model.queue import Queue, QueueOptions
from fairlane.model.segment import pack, unpack
from fairlane.store import forwarding
from fairlane.store.codec import Codec
from fairlane.store.contract.operations import EnqueueResult, NewOperation
from fairlane.store.contract.replay import replay_operation
from fairlane.store.contract.values import Appended, DeadFilter, Full, Gone, OperationsAhead, PushResult, Slice, Stored
from fairlane.store.families.queues import Queues
from fairlane.store.forwarding import AGAIN_SECONDS, Forwarding, Pending, decode_history
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import Messages
from fairlane.store.postgres.operations import enqueue_shard
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "dead_letters.sql")
_KEY = ("partition_id", "group_id", "position")


def _where(queue_id: int, where: DeadFilter) -> tuple[object, ...]:
    partition = where.partition.id if where.partition else None
    times = (where.failed_from, where.failed_until)
    return (queue_id, where.group, partition, where.ids, *times, where.replayed, where.error)


def _dead_letter(row: asyncpg.Record | dict[str, Any]) -> DeadLetter:
    fields = dict(row)
    del fields["id"]
    history = decode_history(fields.pop("history"))
    return DeadLetter(partition=PartitionId(fields.pop("shard"), fields.pop("partition_id")), history=history, **fields)


class DeadLetters:
    def __init__(self, database: Database, shards: list[int], messages: Messages, queues: Queues) -> None:
        self._database = database
        self._shards = shards
        self._queues = queues
        self._messages = messages

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
        return await self._database.codec.open_letters(found[:limit])

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
        run = partial(self._replay, queue_id=queue_id, where=where, limit=limit)
        return await self._database.codec.replay(queue_id, lambda: self._database.transact(run))

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
            partition = PartitionId(row["shard"], row["partition_id"])
            slices.setdefault(partition, Slice(partition, queue_id, options, [], [], [], [], []))
        await self._messages.lock(connection, [], list(slices.values()))
        free = await self._still_dead(connection, rows)
        replayed = [
            (row, _again(slices[PartitionId(row["shard"], row["partition_id"])], row["message"], self._database.codec))
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
        """Store them; in a partition with open operations, as operations."""
        for shard in sorted({part.partition.shard for part in slices}):
            some = sorted((part for part in slices if part.partition.shard == shard), key=lambda part: part.partition)
            results: list[PushResult | EnqueueResult] = []
            results += await self._messages.push_shard(connection.fetch, shard, some)
            deferred = [part for part, result in zip(some, results, strict=True) if isinstance(result, OperationsAhead)]
            if deferred:
                names = {
                    row["id"]: row
                    for row in await connection.fetch(SQL["names"], shard, [p.partition.id for p in deferred])
                }
                operations = [self._operation(part, names[part.partition.id]) for part in deferred]
                results += await enqueue_shard(connection.fetch, shard, operations, self._database.time())
            for result in results:
                if isinstance(result, Full):
                    raise QueueFull(
                        f"the replay does not fit: {result.depth} of {result.capacity} places are taken",
                        depth=result.depth,
                        capacity=result.capacity,
                    )
                if isinstance(result, Gone):
                    raise NotFound("the queue of these dead letters is not there (any more)")

    def _operation(self, part: Slice, names: asyncpg.Record) -> NewOperation:
        return replay_operation(part, names["tenant"], names["queue"], names["partition"], self._database.codec)

    async def forward(self, *, limit: int = 100) -> Appended:
        pending: list[Pending] = []
        for shard in self._shards:
            rows = await self._database.read(SQL["pending"], shard, self._database.time(), limit - len(pending))
            for row in rows:
                *columns, tenant, target = row.items()
                pending.append(Pending(_dead_letter(dict(columns)), tenant[1], target[1]))
        return await forwarding.forward(
            pending, self._queues, self._database.codec, append=self._append_letters, postpone=self._postpone
        )

    async def _append_letters(self, outgoing: Forwarding) -> int:
        async def work(connection: asyncpg.Connection[Any]) -> int:
            slices = outgoing.slices()
            await self._messages.lock(connection, [], slices)
            free: set[str] = set()
            for shard, columns in _keys(outgoing.letters).items():
                for key in await connection.fetch(SQL["lock_pending"], shard, *columns, self._database.time()):
                    free.add("-".join(map(str, (shard, *key))))
            letters_of = outgoing.fill(slices, free, self._database.codec)
            filled = [part for part in slices if part.fragments]
            results = await self._push_beyond(connection, outgoing.queue, filled)
            done = [part for part in filled if isinstance(results[part.partition], Stored)]
            refused = [part for part in filled if part not in done]
            for some, seconds in ((done, None), (refused, AGAIN_SECONDS)):
                letters = [letter for part in some for letter in letters_of[part.partition]]
                for shard, columns in _keys(letters).items():
                    await connection.execute(SQL["postpone"], shard, *columns, seconds, self._database.time())
            return sum(len(part.fragments) for part in done)

        return await self._database.transact(work)

    async def _push_beyond(
        self, connection: asyncpg.Connection[Any], queue: Queue, slices: Sequence[Slice]
    ) -> dict[PartitionId, PushResult]:
        """Push, whether the queue is full or not; its row is locked."""
        limited = queue.options.max_size > 0
        depth = await connection.fetchval(SQL["depth"], queue.id) if limited else 0
        coming = sum(len(part.fragments) for part in slices)
        if limited:
            await connection.execute(SQL["make_room"], queue.id, -coming)
        results: dict[PartitionId, PushResult] = {}
        for shard in sorted({part.partition.shard for part in slices}):
            some = [part for part in slices if part.partition.shard == shard]
            found = await self._messages.push_shard(connection.fetch, shard, some)
            results |= {part.partition: result for part, result in zip(some, found, strict=True)}
        if limited:
            stored = sum(len(part.fragments) for part in slices if isinstance(results[part.partition], Stored))
            await connection.execute(SQL["make_room"], queue.id, depth + stored)
        return results

    async def _postpone(self, letters: Sequence[DeadLetter], seconds: int | None) -> None:
        for shard, columns in _keys(letters).items():
            await self._database.write(SQL["postpone"], shard, *columns, seconds, self._database.time())

    async def purge(self, queue_id: int, where: DeadFilter, *, limit: int = 1000) -> int:
        purged = 0
        for shard in self._route(where):
            rows = await self._database.read(SQL["oldest"], shard, *_where(queue_id, where), limit - purged)
            purged += await self._database.transact(partial(self._purge, shard=shard, rows=rows)) if rows else 0
            if purged >= limit:
                break
        return purged

    async def _purge(self, connection: asyncpg.Connection[Any], *, shard: int, rows: Sequence[asyncpg.Record]) -> int:
        """Remove those of these letters that are still the same; with their lanes held, as who makes one holds them."""
        columns = [[row[name] for row in rows] for name in (*_KEY, "failed_at")]
        await self._messages.lock(connection, [], [], [PartitionId(shard, id) for id in columns[0]])
        await connection.fetch(SQL["lock_cursors"], shard, columns[0])
        return len(await connection.fetch(SQL["delete"], shard, *columns))


def _keys(letters: Sequence[DeadLetter]) -> dict[int, list[list[int]]]:
    """By shard: the columns of the letters' keys."""
    keys: dict[int, list[list[int]]] = {}
    for letter in sorted(letters, key=lambda one: (one.partition.shard, one.partition.id, one.group_id, one.position)):
        columns = keys.setdefault(letter.partition.shard, [[], [], []])
        for column, value in zip(columns, (letter.partition.id, letter.group_id, letter.position), strict=True):
            column.append(value)
    return keys


def _again(part: Slice, message: bytes, codec: Codec) -> str:
    """Add a dead letter's message to a slice, as a new message; its id."""
    clear = codec.open_message(part.partition, message)
    old = unpack(clear, position=0, created_at=0)
    item = PushItem(
        queue="",
        payload=old.raw,
        trace_id=old.trace_id,
        type=old.type,
        headers=replay_headers(old.transaction_id, old.headers),
    )
    id = uuid7()
    fragment = pack(id, id, item)
    part.fragments.append(codec.replayed(part, fragment))
    part.transaction_ids.append(id)
    part.keys.append(id_key(id))
    part.id_times.append(uuid7_ms(id) or 0)
    part.given.append(False)
    return id
