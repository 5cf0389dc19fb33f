"""Scheduled messages on PostgreSQL."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from fairlane.model.ids import PartitionId, id_key
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import ids_of
from fairlane.store.firing import ROUNDS_MAX, Due, Firing
from fairlane.store.postgres.connection import MINUS_INFINITY, Database
from fairlane.store.postgres.messages import Messages
from fairlane.store.statements import load
from fairlane.store.values import Duplicate, Fired, Gone, Kept, Scheduled, Waiting

SQL = load("fairlane.store.postgres", "schedules.sql")
_decode_options = msgspec.json.Decoder(QueueOptions).decode


class Schedules:
    def __init__(self, database: Database, shards: List[int], messages: Messages) -> None:
        self._database = database
        self._shards = shards
        self._messages = messages

    async def add(self, parts: Sequence[Scheduled]) -> List[List[Kept | Duplicate | Gone]]:
        shards: dict[int, List[int]] = defaultdict(list)
        for number, part in enumerate(parts):
            shards[part.slice.partition.shard].append(number)
        results: List[List[Kept | Duplicate | Gone]] = [[Gone()] * len(part.slice.fragments) for part in parts]
        for shard, numbers in sorted(shards.items()):
            owners = [(number, index) for number in numbers for index in range(len(parts[number].slice.fragments))]
            arguments = _arguments(shard, [parts[number] for number in numbers], self._database.time())
            for kind, item, due_at, pos, head, message_id, transaction_id in await self._database.write(
                SQL["add"], *arguments
            ):
                number, index = owners[item - 1]
                if kind == b"k":
                    results[number][index] = Kept(due_at)
                elif kind == b"d":
                    ids = ids_of(head) if head is not None else (message_id, transaction_id)
                    results[number][index] = Duplicate(index, pos, *ids)
        return results

    async def fire(self, *, limit: int = 1000) -> Fired:
        queues: dict[int, int] = defaultdict(int)
        count = 0
        for shard in self._shards:
            firing = await self._fire(shard, limit - count)
            count += len(firing.done) + len(firing.later)
            for queue_id, fired in firing.fired.items():
                queues[queue_id] += fired
            if count >= limit:
                break
        return Fired(dict(queues), count)

    async def _fire(self, shard: int, limit: int) -> Firing:
        """What is due in one shard is appended and forgotten in one transaction, so that it comes once."""

        async def work(connection: asyncpg.Connection[Any]) -> Firing:
            now = self._database.time()
            firing = Firing(shard, [Due(*row) for row in await connection.fetch(SQL["due"], shard, limit, now)])
            for _ in range(ROUNDS_MAX):
                queue_ids = sorted({rows[0].queue_id for rows in firing.left.values()})
                found = await connection.fetch(SQL["options"], queue_ids) if queue_ids else []
                slices = firing.slices({id: _decode_options(text) for id, text in found})
                if not slices:
                    break
                results = await self._messages.push_shard(connection.fetch, shard, slices)
                for queue_id, name in firing.apply(slices, results):
                    for id, _ in await connection.fetch(SQL["born"], shard, queue_id, [name], now):
                        firing.move(name, queue_id, id)
            firing.later += [row for rows in firing.left.values() for row in rows]
            for verb, rows, more in (("done", firing.done, ()), ("postpone", firing.later, (now,))):
                if rows:
                    keys = [row.due_at for row in rows], [row.message_id for row in rows]
                    await connection.execute(SQL[verb], shard, *keys, *more)
            return firing

        return await self._database.transact(work)

    async def cancel(self, partition: PartitionId, transaction_id: str) -> bool:
        return bool(await self._database.write(SQL["cancel"], *partition, _keys(transaction_id), transaction_id))

    async def reschedule(
        self, partition: PartitionId, transaction_id: str, *, due_at: int | None = None, delay_ms: int = 0
    ) -> int | None:
        rows = await self._database.write(
            SQL["reschedule"],
            *(*partition, _keys(transaction_id), transaction_id, due_at, delay_ms, self._database.time()),
        )
        return rows[0]["due_at"] if rows else None

    async def list(self, queue_id: int, *, after: tuple[int, str] | None = None, limit: int = 100) -> List[Waiting]:
        found = []
        for shard in self._shards:
            since = after or (MINUS_INFINITY, "")
            rows = await self._database.read(SQL["list"], shard, queue_id, *since, limit)
            found += [Waiting(PartitionId(shard, id), *rest) for _, id, *rest in rows]
        return sorted(found, key=lambda one: (one.due_at, one.message_id))[:limit]

    async def next_in(self) -> int | None:
        times = []
        for shard in self._shards:
            [[due_at, now]] = await self._database.read(SQL["next_in"], shard, self._database.time())
            times += [] if due_at is None else [due_at - now]
        return min(times, default=None)


def _keys(transaction_id: str) -> List[int]:
    return [id_key(transaction_id), id_key(transaction_id, salt=1)]


def _arguments(shard: int, parts: Sequence[Scheduled], now: int | None) -> tuple[object, ...]:
    slices = [part.slice for part in parts]
    upto: List[int] = []
    for part in slices:
        upto.append(len(part.fragments) + (upto[-1] if upto else 0))
    return (
        shard,
        [part.partition.id for part in slices],
        [part.queue_id for part in slices],
        [part.partition_name for part in parts],
        upto,
        [part.options.dedup_seconds for part in slices],
        [key for part in slices for key in part.keys],
        [at for part in slices for at in part.id_times],
        [given for part in slices for given in part.given],
        [at for part in parts for at in part.due_at],
        [delay for part in parts for delay in part.delay_ms],
        [fragment[7:43].decode() for part in slices for fragment in part.fragments],
        [text for part in slices for text in part.transaction_ids],
        [fragment for part in slices for fragment in part.fragments],
        now,
    )
