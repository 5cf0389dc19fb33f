"""Consumer groups on PostgreSQL."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections import Counter
from typing import Any

import asyncpg

from fairlane.errors import NotFound
from fairlane.model.group import Group, LaneState, Seek, Subscription, stopped
from fairlane.model.ids import PartitionId
from fairlane.store.contract.values import Roused
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.queues import recount
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "groups.sql")
_SEED_PARTITIONS = 5000
"""Cursors made in one transaction: a group over a million partitions must not hold their locks all at once."""


def group_of(row: asyncpg.Record) -> Group:
    return Group(
        id=row["id"],
        queue_id=row["queue_id"],
        name=row["name"],
        subscription=Subscription(row["mode"], row["from_at"], row["conflation"], row["look"]),
        created_at=row["created_at"],
        seeding=row["seeding"],
    )


class Groups:
    def __init__(self, database: Database, shards: list[int]) -> None:
        self._database = database
        self._shards = shards

    async def get(self, queue_id: int, name: str) -> Group | None:
        rows = await self._database.read(SQL["get"], queue_id, name)
        return group_of(rows[0]) if rows else None

    async def list(self, queue_id: int) -> List[Group]:
        return [group_of(row) for row in await self._database.read(SQL["list"], queue_id)]

    async def subscribe(self, queue_id: int, name: str, subscription: Subscription) -> Group:
        async def work(connection: asyncpg.Connection[Any]) -> Group:
            limit = await connection.fetchval(SQL["lock_queue"], queue_id)
            if limit is None:
                raise NotFound(f"queue {queue_id} is not there (any more)")
            row = await connection.fetchrow(SQL["get"], queue_id, name)
            if row is None:
                begun = (subscription.mode, subscription.from_at, subscription.conflation, subscription.look)
                made = (queue_id, name, *begun, self._database.time(), self._shards[0])
                await self._seed(connection, await connection.fetchval(SQL["make"], *made), exact=True)
            elif row["look"] and not subscription.look:
                await connection.execute(SQL["consumed"], row["id"])
            else:
                return group_of(row)
            await self._weigh(connection, queue_id, limited=limit > 0)
            return group_of(await connection.fetchrow(SQL["get"], queue_id, name))

        return await self._database.transact(work)

    async def _weigh(self, connection: asyncpg.Connection[Any], queue_id: int, *, limited: bool) -> None:
        """Which groups count, and with it the depth. The caller holds the queue's row."""
        await connection.execute(SQL["weigh"], queue_id)
        if limited:
            await recount(connection, self._shards, queue_id)

    async def seed(self, group_id: int) -> bool:
        async def work(connection: asyncpg.Connection[Any]) -> bool:
            queue_id = await connection.fetchval(SQL["queue_of"], group_id)
            limit = await connection.fetchval(SQL["lock_queue"], queue_id)
            more = await self._seed(connection, group_id, exact=False)
            if limit:
                await recount(connection, self._shards, queue_id)
            return more

        return await self._database.transact(work)

    async def _seed(self, connection: asyncpg.Connection[Any], group_id: int, *, exact: bool) -> bool:
        """The next cursors, under the queue's lock; whether some are still missing."""
        row = await connection.fetchrow(SQL["seeding"], group_id)
        left = _SEED_PARTITIONS
        if row is None:
            return False
        shards = [shard for shard in self._shards if shard >= row["seed_shard"]]
        after = row["seed_after"]
        for shard in shards:
            await connection.execute(SQL["set_seeding"], group_id, shard, after)
            while left > 0:
                step = min(left, 1000)
                last = await connection.fetchval(
                    SQL["seed"],
                    *(shard, row["queue_id"], group_id, row["mode"], row["from_at"], exact, after, step),
                    self._database.time(),
                )
                if last is None:
                    break
                after = last
                left -= step
                await connection.execute(SQL["set_seeding"], group_id, shard, after)
            else:
                return True
            after = ""
        await connection.execute(SQL["set_seeding"], group_id, None, None)
        return False

    async def lanes(
        self, group_id: int, *, partition: PartitionId | None = None, after: str = "", limit: int = 1000
    ) -> List[LaneState]:
        queue_id = await self._queue_of(group_id)
        if queue_id is None:
            return []
        shards, id = ([partition.shard], partition.id) if partition else (self._shards, 0)
        rows = await self._database.read(
            SQL["lanes"], shards, queue_id, group_id, after, id, limit, self._database.time()
        )
        return [
            LaneState(
                partition=PartitionId(row["shard"], row["id"]),
                name=row["name"],
                start=row["start"],
                head=row["head"],
                committed=row["committed"],
                leased_until=row["leased_until"],
                lease_ends_at=row["ready_at"] if row["leased_until"] is not None else None,
                ready_at=row["ready_at"],
                attempts=row["attempts"],
                error=row["error"],
                stopped=stopped(parked=row["parked"], paused=row["paused_at"] is not None, never=row["stopped"]),
                dead=row["dead"],
                expired=row["expired"],
                last_at=row["last_at"],
                skipped=row["skipped"],
                in_flight=row["in_flight"],
                operations=row["open_operations"],
                oldest_at=row["oldest_at"],
            )
            for row in rows
        ]

    async def seek(self, group_id: int, seek: Seek, *, partition: PartitionId | None = None) -> int:
        queue_id = await self._queue_of(group_id)
        if queue_id is None:
            return 0
        at = seek.at if seek.to == "time" else None

        async def work(connection: asyncpg.Connection[Any]) -> int:
            limit = await connection.fetchval(SQL["lock_queue"], queue_id)
            moved = 0
            for shard in self._shards if partition is None else [partition.shard]:
                moved += await connection.fetchval(
                    SQL["seek"],
                    *(shard, queue_id, group_id, partition.id if partition else 0, seek.to, at, seek.at),
                    self._database.time(),
                )
            if limit:
                await recount(connection, self._shards, queue_id)
            return moved

        return await self._database.transact(work)

    async def delete(self, group_id: int, *, keep_subscription: bool = False) -> int:
        queue_id = await self._queue_of(group_id)
        if queue_id is None:
            return 0

        async def work(connection: asyncpg.Connection[Any]) -> int:
            limit = await connection.fetchval(SQL["lock_queue"], queue_id)
            if keep_subscription:
                await connection.execute(SQL["begin_anew"], group_id, self._shards[0])
            else:
                await connection.execute(SQL["delete"], group_id)
            deleted = 0
            for shard in self._shards:
                ids = [row["id"] for row in await connection.fetch(SQL["partition_ids"], shard, queue_id)]
                await connection.fetch(SQL["lock_cursors"], shard, ids, group_id)
                answer = await connection.execute(SQL["delete_cursors"], shard, ids, group_id)
                deleted += int(answer.split()[-1])
                for table in ("failures", "claims", "skips", "dead_letters", "results"):
                    await connection.execute(SQL[f"delete_{table}"], shard, ids, group_id)
            await self._weigh(connection, queue_id, limited=bool(limit))
            return deleted

        return await self._database.transact(work)

    async def resubscribe(self, group_id: int, subscription: Subscription) -> bool:
        row = (group_id, subscription.mode, subscription.from_at)
        return bool(await self._database.write(SQL["resubscribe"], *row))

    async def result(self, group_id: int, partition: PartitionId, position: int) -> bytes | None:
        rows = await self._database.read(SQL["result"], partition.shard, partition.id, group_id, position)
        return await self._database.codec.open(partition, rows[0]["result"], f"result {position}") if rows else None

    async def rouse(self, after: PartitionId | None, *, limit: int) -> Roused:
        shard = after.shard if after else self._shards[0]
        [found] = await self._database.read(SQL["asleep"], shard, after.id if after else 0, limit)
        if found["ids"]:
            await self._database.write(SQL["rouse"], shard, found["ids"], found["groups"], self._database.time())
        if found["last"] is not None:
            return Roused(dict(Counter(found["queues"])), PartitionId(shard, found["last"]))
        next_shards = [other for other in self._shards if other > shard]
        return Roused({}, PartitionId(next_shards[0], 0) if next_shards else None)

    async def next_ready_at(self, group_id: int) -> int | None:
        found = []
        for shard in self._shards:
            [[at]] = await self._database.read(SQL["next_ready_at"], shard, group_id)
            found += [] if at is None else [at]
        return min(found, default=None)

    async def _queue_of(self, group_id: int) -> int | None:
        rows = await self._database.read(SQL["queue_of"], group_id)
        return rows[0]["queue_id"] if rows else None
