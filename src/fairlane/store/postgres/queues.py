"""Queues and partitions on PostgreSQL."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg
import msgspec

from fairlane.errors import Conflict, NotFound, OptionsChanged
from fairlane.model.ids import PartitionId
from fairlane.model.queue import (
    PRIORITY_SECONDS,
    TURNED,
    Partition,
    PartitionState,
    Queue,
    QueueOptions,
    eases,
    labels_of,
    turns,
)
from fairlane.store.families.specs import SPECS, SpecChange, changed
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.port import Transaction
from fairlane.store.postgres.shards import shard_of
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "queues.sql")
_PURGE_PARTITIONS = 200
CHANGES_MAX = 1000
_TABLES = (
    *("scheduled", "segments", "message_keys", "deleted_ids", "cursors", "claims", "failures", "skips"),
    *("dead_letters", "results", "traced", "traces", "trace_names", "stream_state", "trims", "expiries", "partitions"),
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


class Reconfigured(NamedTuple):
    """A queue by its locked row, and what it is to be."""

    row: asyncpg.Record
    options: QueueOptions
    namespace: str
    task: str

    @property
    def before(self) -> QueueOptions:
        return _decode_options(self.row["options"])


async def recount(connection: asyncpg.Connection[Any], shards: list[int], queue_id: int) -> None:
    """Count a limited queue's depth anew. The caller holds the queue's row, so that no push or ack moves it
    meanwhile."""
    depth = sum([await connection.fetchval(SQL["unfinished"], shard, queue_id) for shard in shards])
    await connection.execute(SQL["set_depth"], queue_id, depth)


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
        [queue] = await self.ensure_all(tenant, [name])
        return queue

    async def ensure_all(self, tenant: str, names: Sequence[str], *, make: bool = True) -> List[Queue]:
        options = msgspec.json.encode(QueueOptions()).decode()
        found: dict[str, Queue] = {}
        while missing := sorted(set(names).difference(found)):
            labels = [list(column) for column in zip(*map(labels_of, missing), strict=True)]
            rows = await self._database.write(
                SQL["ensure"], tenant, missing, *labels, options, make, self._database.time()
            )
            found |= {row["name"]: _queue(row) for row in rows}
            if not make:
                break
            if not rows and not await self._database.read(SQL["tenant_id"], tenant):
                raise NotFound(f"there is no tenant {tenant!r}")
        return [found[name] for name in dict.fromkeys(names) if name in found]

    async def configure(
        self,
        tenant: str,
        name: str,
        options: QueueOptions,
        *,
        namespace: str,
        task: str,
        before: QueueOptions | None = None,
    ) -> Queue:
        if before is None:
            await self.ensure(tenant, name)

        async def work(connection: asyncpg.Connection[Any]) -> bool:
            rows = await connection.fetch(SQL["lock"], tenant, [name])
            if before is not None and [_decode_options(row["options"]) for row in rows] != [before]:
                raise OptionsChanged(name)
            await self.reconfigure(connection, [Reconfigured(row, options, namespace, task) for row in rows])
            await self.note_changes(connection, [row["id"] for row in rows])
            return bool(rows)

        while not await self._database.transact(work):
            await self.ensure(tenant, name)
        queue = await self.get(tenant, name)
        if queue is None:
            raise NotFound(f"queue {name!r} was deleted while it was configured")
        return queue

    async def reconfigure(self, connection: asyncpg.Connection[Any], some: Sequence[Reconfigured]) -> None:
        """Give queues, whose rows the caller holds, other options and labels. Conflict if one has partitions that
        cannot be what they would have to."""
        time = self._database.time()
        for one in some:
            id = one.row["id"]
            if turns(one.before, one.options):
                for shard in self._shards:
                    if await connection.fetch(SQL["any_partition"], shard, id):
                        raise Conflict(TURNED)
            text = msgspec.json.encode(one.options).decode()
            await connection.execute(SQL["configure"], id, text, one.namespace, one.task)
        limited = [one.row["id"] for one in some if one.options.max_size > 0 and one.before.max_size == 0]
        eased = {one.row["id"]: one.before for one in some if eases(one.before, one.options)}
        await self._hold(connection, [*limited, *eased])
        for queue_id in limited:
            await recount(connection, self._shards, queue_id)
        slept = [
            [before.delay_seconds for before in eased.values()],
            [before.window_seconds for before in eased.values()],
        ]
        for shard in self._shards if eased else ():
            await connection.fetch(SQL["wake"], shard, list(eased), *slept, time)

    async def _hold(self, connection: asyncpg.Connection[Any], queue_ids: List[int]) -> None:
        """Partitions of all of them before any cursor, as everybody takes them."""
        locked = {
            shard: [record[0] for record in await connection.fetch(SQL["lock_partitions"], shard, queue_ids)]
            for shard in (self._shards if queue_ids else ())
        }
        for shard, ids in locked.items():
            await connection.fetch(SQL["lock_cursors"], shard, ids)

    async def delete(self, tenant: str, name: str) -> bool:
        async def work(connection: asyncpg.Connection[Any]) -> bool:
            rows = await connection.fetch(SQL["lock"], tenant, [name])
            for row in rows:
                await self.drop(connection, row["id"])
            await self.note_changes(connection, [row["id"] for row in rows])
            return bool(rows)

        existed = await self._database.transact(work)
        await self.purge()
        return existed

    async def drop(self, connection: asyncpg.Connection[Any], queue_id: int) -> None:
        """A queue whose row the caller holds; its other rows are for `purge`."""
        for statement in ("delete", "delete_groups", "delete_data_keys", "insert_purge"):
            await connection.execute(SQL[statement], queue_id)

    async def declare(self, transaction: Transaction, change: SpecChange) -> None:
        """Rows are locked by id, as everybody locks them."""
        connection, tenant = transaction.connection, change.spec.tenant
        wanted = {one.name: one for one in change.queues}
        for name in sorted(name for name, one in wanted.items() if one.before is None):
            # Its options are those that it is to have: nothing of it has to be counted or woken.
            options = msgspec.json.encode(wanted[name].after).decode()
            made = (tenant, name, *labels_of(name), options, self._database.time())
            if await connection.fetchval(SQL["make"], *made) is None:
                raise changed(name)
        rows = await connection.fetch(SQL["lock"], tenant, [*wanted, *change.queues_gone])
        if missing := wanted.keys() - {row["name"] for row in rows}:
            raise changed(min(missing))
        old = []
        for row in rows:
            name = row["name"]
            if name in wanted and wanted[name].before is not None:
                old.append(Reconfigured(row, wanted[name].after, row["namespace"], row["task"]))
                if old[-1].before != wanted[name].before:
                    raise changed(name)
        await self.reconfigure(connection, old)
        for row in rows:
            if row["name"] not in wanted:
                await self.drop(connection, row["id"])
        await self.note_changes(connection, [*(row["id"] for row in rows), SPECS])

    async def note_changes(self, connection: asyncpg.Connection[Any], queue_ids: Sequence[int]) -> None:
        """Last in a transaction: until its commit other changes wait, so that versions rise in commit order."""
        version = 0
        for queue_id in queue_ids:
            version = await connection.fetchval(SQL["next_version"])
            await connection.execute(SQL["changed"], version, queue_id)
        if queue_ids:
            await connection.execute(SQL["forget_changes"], version - CHANGES_MAX)

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
            await self._database.write(SQL["delete_purge"], row["queue_id"])

    async def _purge_some(self, shard: int, queue_id: int) -> bool:
        async def work(connection: asyncpg.Connection[Any]) -> bool:
            rows = await connection.fetch(SQL["partitions_to_purge"], shard, queue_id, _PURGE_PARTITIONS)
            ids = [row["id"] for row in rows]
            for lock in ("lock_scheduled", "lock_to_purge", "lock_cursors"):
                await connection.fetch(SQL[lock], shard, ids)
            for table in _TABLES:
                await connection.execute(SQL[f"purge_{table}"], shard, ids)
            return bool(ids)

        return await self._database.transact(work)

    async def born(self, queue_id: int, names: Sequence[str]) -> List[Partition]:
        found = {partition.name: partition for partition in await self.born_all({queue_id: names})}
        if len(found) < len(set(names)):
            raise NotFound(f"queue {queue_id} is not there (any more)")
        return [found[name] for name in names]

    async def born_all(self, wanted: Mapping[int, Collection[str]], *, make: bool = True) -> List[Partition]:
        by_shard: dict[int, set[tuple[int, str]]] = defaultdict(set)
        for queue_id, names in wanted.items():
            by_shard[shard_of(self._shards, queue_id)].update((queue_id, name) for name in names)
        found: List[Partition] = []
        for shard in sorted(by_shard):
            pairs = sorted(by_shard[shard])
            columns = [queue_id for queue_id, _ in pairs], [name for _, name in pairs]
            rows = await self._database.write(SQL["born"], shard, *columns, make, self._database.time())
            found += [
                Partition(PartitionId(shard, row["id"]), row["queue_id"], row["name"], row["unordered"]) for row in rows
            ]
        return found

    async def set_priority(self, partition: PartitionId, priority: int) -> bool:
        seconds = priority * PRIORITY_SECONDS
        [[there]] = await self._database.write(SQL["set_priority"], *partition, seconds, self._database.time())
        return bool(there)

    async def partition(self, id: PartitionId) -> Partition | None:
        rows = await self._database.read(SQL["partition"], id.shard, id.id)
        return Partition(id, rows[0]["queue_id"], rows[0]["name"], rows[0]["unordered"]) if rows else None

    async def named(self, queue_id: int, name: str) -> Partition | None:
        shard = shard_of(self._shards, queue_id)
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
