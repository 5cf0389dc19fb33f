"""Retention on PostgreSQL: deleting what a rule covers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import asyncpg

from fairlane.errors import LeaseLost
from fairlane.model.retention import HISTORY_SECONDS, PARTITION_HISTORY_SECONDS, Expired, Retained, Step
from fairlane.store.families.browse import Browse
from fairlane.store.postgres.connection import Database
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "retention.sql")
_COVER = 1000
_LETTERS = 1000
_TRIMS = 10
"""Statements that delete rows of the log in one step; the leader shows that it lives between steps."""
_YEAR_9999 = 253_402_300_799_000_000
T = TypeVar("T")


class Retention:
    def __init__(self, database: Database, shards: list[int], browse: Browse) -> None:
        self._database = database
        self._shards = shards
        self._browse = browse
        self._surveyed = 0
        self._letters: list[tuple[int, int]] = []

    async def due(self) -> bool:
        [[due]] = await self._database.read(SQL["due"])
        return bool(due)

    async def step(self, token: int, *, limit: int = 50) -> Step:
        if token != self._surveyed:
            self._letters = await self._fenced(token, self._survey)
            self._surveyed = token
        more = await self._fenced(token, self._cover)
        expired: list[Expired] = []
        for shard in self._shards:
            rows = await self._fenced(token, partial(self._expire, shard=shard, limit=limit))
            for queue_id, rule, messages, unread in rows:
                if rule == "looked":
                    more = more or messages == limit
                else:
                    expired.append(Expired(queue_id, rule, messages, unread))
            for queue_id, seconds in self._letters:
                gone = await self._fenced(token, partial(self._expire_letters, shard, queue_id, seconds))
                if gone[0]:
                    expired.append(Expired(queue_id, "dead_letters", *gone))
                    more = more or gone[0] == _LETTERS
        return Step(expired, await self._browse.trim_some(_TRIMS) or more)

    async def _fenced(self, token: int, work: Callable[[asyncpg.Connection[Any]], Awaitable[T]]) -> T:
        """Do work as the leader: nobody else can become it before this is committed."""

        async def fenced(connection: asyncpg.Connection[Any]) -> T:
            if not await connection.fetch(SQL["fence"], token, self._database.time()):
                raise LeaseLost("another broker leads retention now, or may")
            return await work(connection)

        return await self._database.transact(fenced)

    async def _survey(self, connection: asyncpg.Connection[Any]) -> list[tuple[int, int]]:
        """Find queues whose rules changed; those with a rule for dead letters, with its seconds."""
        await connection.execute(SQL["rules_gone"])
        await connection.execute(SQL["rules_changed"], self._shards[0])
        for shard in self._shards:
            await connection.execute(SQL["forget_minutes"], shard, self._database.time(), HISTORY_SECONDS)
            await connection.execute(SQL["forget_hours"], shard, self._database.time(), PARTITION_HISTORY_SECONDS)
        return [(row[0], row[1]) for row in await connection.fetch(SQL["letters_ruled"])]

    async def _cover(self, connection: asyncpg.Connection[Any]) -> bool:
        """Let partitions of a queue whose rules changed be looked at, some of them; whether more may be left."""
        row = await connection.fetchrow(SQL["next_cover"])
        if row is None:
            return False
        queue_id, shard, after = row
        last = await connection.fetchval(SQL["cover"], shard, queue_id, after, _COVER, self._database.time())
        if last is None:
            next_shards = [one for one in self._shards if one > shard]
            await connection.execute(SQL["covered"], queue_id, next_shards[0] if next_shards else None, "")
        else:
            await connection.execute(SQL["covered"], queue_id, shard, last)
        return True

    async def _expire(self, connection: asyncpg.Connection[Any], *, shard: int, limit: int) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await connection.fetch(SQL["expire"], shard, limit, self._database.time())
        return rows

    async def _expire_letters(
        self, shard: int, queue_id: int, seconds: int, connection: asyncpg.Connection[Any]
    ) -> tuple[int, int]:
        now = self._database.time()
        rows = await connection.fetch(SQL["expire_letters"], shard, queue_id, seconds, _LETTERS, now)
        for partition, letters, unread in rows:
            await connection.execute(SQL["record"], shard, queue_id, partition, "dead_letters", letters, unread, now)
        return sum(row[1] for row in rows), sum(row[2] for row in rows)

    async def history(self, queue_ids: Sequence[int], *, since: int, until: int) -> list[Retained]:
        minute = 60_000_000
        rows = await self._database.read(
            SQL["history"], self._shards, list(queue_ids), since // minute * minute, min(until, _YEAR_9999)
        )
        return [Retained(*row) for row in rows]
