"""Operations, on PostgreSQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from fairlane.model.ids import PartitionId, least_uuid7
from fairlane.model.limits import ERROR_CHARS_MAX
from fairlane.model.operation import (
    PRIORITIES,
    RETRIES_MAX,
    TIMEOUT_SECONDS,
    Operation,
    OperationBacklog,
    OperationCount,
    OperationStatus,
)
from fairlane.store.contract.operations import (
    BACKLOGS_MAX,
    FIRST,
    PAGES,
    RUN_BYTES_MAX,
    RUN_MAX,
    AppliedOperation,
    BacklogClaim,
    ClaimedBacklog,
    Enqueued,
    EnqueueResult,
    NewOperation,
)
from fairlane.store.contract.values import Full, Gone, Locked
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import Messages, by_shard
from fairlane.store.postgres.operation_apply import OperationApplier
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "operations.sql")


def _operation(row: asyncpg.Record) -> Operation:
    fields = dict(row)
    return Operation(partition=PartitionId(fields.pop("shard"), fields.pop("partition_id")), **fields)


def _columns(one: AppliedOperation) -> tuple[Any, ...]:
    return (
        *(one.partition.id, one.sequence, one.id, one.type, PRIORITIES[one.type]),
        *(one.tenant, one.queue, one.partition_name, one.group, one.messages),
        *(one.created_at, one.result),
    )


def _enqueued(row: asyncpg.Record) -> EnqueueResult:
    if row["kind"] == b"w":
        return Enqueued(row["queue_position"], row["depth"], row["capacity"])
    return Full(row["depth"], row["capacity"]) if row["kind"] == b"f" else Gone()


async def enqueue_shard(
    run: Callable[..., Any], shard: int, some: Sequence[NewOperation], now: int | None
) -> list[EnqueueResult]:
    """Keep operations of one shard, by a call or inside a transaction."""
    rows = await run(
        SQL["enqueue"],
        shard,
        sorted({one.queue_id for one in some if one.options.max_size > 0}),
        [one.id for one in some],
        [one.type for one in some],
        [PRIORITIES[one.type] for one in some],
        [one.partition.id for one in some],
        [one.queue_id for one in some],
        [one.group_id for one in some],
        [one.messages for one in some],
        [one.payload for one in some],
        [one.tenant for one in some],
        [one.queue for one in some],
        [one.partition_name for one in some],
        [one.group for one in some],
        TIMEOUT_SECONDS,
        now,
    )
    results: list[EnqueueResult] = [Gone()] * len(some)
    for row in rows:
        results[row["item"] - 1] = _enqueued(row)
    return results


class Operations(OperationApplier):
    def __init__(self, database: Database, shards: list[int], messages: Messages) -> None:
        super().__init__(database, messages)
        self._shards = shards
        self._turn = 0

    async def enqueue(self, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        locked: EnqueueResult = Locked()

        async def run(shard: int, some: list[NewOperation]) -> list[EnqueueResult]:
            return await self._messages.locked.around(some, partial(self._enqueue, shard), locked)

        sealed = [await self._database.codec.seal_operation(one) for one in operations]
        return await by_shard(sealed, lambda one: (0, 0), run)  # in the order in which they came

    async def _enqueue(self, shard: int, some: Sequence[NewOperation]) -> list[EnqueueResult]:
        return await enqueue_shard(self._database.write, shard, some, self._database.time())

    async def claim(
        self, worker: str, *, backlogs: int = BACKLOGS_MAX, token: UUID | None = None
    ) -> list[ClaimedBacklog]:
        claimed: list[ClaimedBacklog] = []
        named = token or uuid4()
        self._turn += 1  # each time from another shard, so that none waits for the others
        for offset in range(len(self._shards)):
            shard = self._shards[(self._turn + offset) % len(self._shards)]
            wanted = backlogs - len(claimed)
            if wanted <= 0:
                break
            claimed += await self._claim(shard, worker, wanted, named)
        return await self._database.codec.open_backlogs(claimed, self.postpone)

    async def give_back(self, token: UUID) -> int:
        given = [
            await self._database.write(SQL["give_back"], shard, token, self._database.time()) for shard in self._shards
        ]
        return sum(map(len, given))

    async def _claim(self, shard: int, worker: str, backlogs: int, token: UUID) -> list[ClaimedBacklog]:
        timeout = timedelta(seconds=TIMEOUT_SECONDS)
        rows = await self._database.write(
            SQL["claim"], shard, worker, token, backlogs, RUN_MAX, RUN_BYTES_MAX, timeout, self._database.time()
        )
        found: dict[tuple[int, int], ClaimedBacklog] = {}
        for operation in sorted(map(_operation, rows), key=lambda one: (one.priority, one.created_at, one.sequence)):
            key = (operation.partition.id, operation.group_id)
            if key not in found:
                claim = BacklogClaim(operation.partition, operation.group_id, token)
                found[key] = ClaimedBacklog(claim, operation.queue_id, [])
            found[key].operations.append(operation)
        for backlog in found.values():
            backlog.operations.sort(key=lambda one: one.sequence)
        return list(found.values())

    async def postpone(self, claims: Sequence[BacklogClaim], *, delay_ms: int, error: str) -> int:
        postponed = 0
        delay = timedelta(milliseconds=delay_ms)
        for shard in sorted({claim.partition.shard for claim in claims}):
            some = [claim for claim in claims if claim.partition.shard == shard]
            work = partial(self._postpone, shard=shard, some=some, delay=delay, error=error)
            postponed += await self._database.transact(work)
        return postponed

    async def _postpone(
        self, connection: asyncpg.Connection[Any], shard: int, some: list[BacklogClaim], delay: timedelta, error: str
    ) -> int:
        tokens = [one.token for one in some]
        backlogs = [[one.partition.id for one in some], [one.group_id for one in some]]
        rows = await connection.fetch(SQL["postpone"], shard, *backlogs, tokens, delay, self._database.time())
        postponed = [[row[0] for row in rows], [row[1] for row in rows]]
        await connection.execute(SQL["wait_again"], shard, *postponed, error[:ERROR_CHARS_MAX])
        return len(rows)

    async def fail(self, claim: BacklogClaim, sequences: Sequence[int], error: str, *, delay_ms: int) -> int:
        key = (*claim.partition, claim.group_id)
        error = error[:ERROR_CHARS_MAX]

        async def work(connection: asyncpg.Connection[Any]) -> int:
            now = self._database.time()
            await self._messages.lock(connection, [], [], [claim.partition])
            if await connection.fetchval(SQL["claim_token"], *key) != claim.token:
                return 0
            delay = timedelta(milliseconds=delay_ms)
            rows = await connection.fetch(SQL["charge"], *key, list(sequences), error, now)
            used_up = sorted(row["sequence"] for row in rows if row["retries"] > RETRIES_MAX)
            if not used_up:
                await self._postpone(connection, claim.partition.shard, [claim], delay, error)
            for sequence in used_up:
                await connection.execute(SQL["drop"], *key, sequence, "failed", error, False, now)
            if used_up:
                await connection.execute(SQL["wait_again"], key[0], [key[1]], [key[2]], error)
            return len(used_up)

        return await self._database.transact(work)

    async def record(self, applied: Sequence[AppliedOperation]) -> None:
        by_shard: dict[int, list[AppliedOperation]] = defaultdict(list)
        for one in applied:
            by_shard[one.partition.shard].append(one)
        for shard, some in by_shard.items():
            columns = zip(*map(_columns, some), strict=True)
            await self._database.write(SQL["record"], shard, *map(list, columns), self._database.time())

    async def get(self, tenant: str, id: UUID) -> Operation | None:
        found = await self._get(tenant, id)
        return found and await self._database.codec.open_operation(found)

    async def _get(self, tenant: str, id: UUID) -> Operation | None:
        for shard in self._shards:
            rows = await self._database.read(SQL["get"], shard, tenant, id)
            if rows:
                return _operation(rows[0])
        return None

    async def page(
        self,
        tenant: str,
        *,
        status: OperationStatus | None = None,
        queue: str | None = None,
        after: UUID = FIRST,
        limit: int = 100,
    ) -> list[Operation]:
        found: list[Operation] = []
        for shard in self._shards:
            statement = SQL[PAGES.get(status or "", "page")]
            rows = await self._database.read(statement, shard, tenant, after, status, queue, limit)
            if rows:
                shown = await self._database.read(SQL["shown"], shard, [row[0] for row in rows])
                found += map(_operation, shown)
        return sorted(found, key=lambda one: one.id)[:limit]

    async def failed(self, tenant: str) -> int:
        return sum([(await self._database.read(SQL["count_failed"], shard, tenant))[0][0] for shard in self._shards])

    async def retry(self, tenant: str, id: UUID, anew: NewOperation) -> EnqueueResult | None:
        found = await self._get(tenant, id)
        if found is None or found.status != "failed":
            return None
        key = (*found.partition, found.group_id, found.sequence)
        sealed = await self._database.codec.seal_operation(anew)

        async def work(connection: asyncpg.Connection[Any]) -> EnqueueResult | None:
            await self._messages.lock(connection, [], [], [found.partition, anew.partition])
            if await connection.fetchval(SQL["lock"], *key) != "failed":
                return None
            await connection.execute(SQL["delete"], *key)
            [result] = await enqueue_shard(connection.fetch, anew.partition.shard, [sealed], self._database.time())
            if not isinstance(result, Enqueued):
                raise _NotEnqueued(result)
            await connection.execute(SQL["keep_created_at"], anew.partition.shard, id, found.created_at)
            return result

        try:
            return await self._database.transact(work)
        except _NotEnqueued as refused:
            return refused.result

    async def discard(self, tenant: str, id: UUID) -> bool:
        found = await self._get(tenant, id)
        if found is None or found.status not in ("pending", "failed"):
            return False
        key = (*found.partition, found.group_id, found.sequence)

        async def work(connection: asyncpg.Connection[Any]) -> bool:
            await self._messages.lock(connection, [], [], [found.partition])
            await connection.fetchval(SQL["claim_token"], *key[:3])
            status = await connection.fetchval(SQL["lock"], *key)
            if status == "failed":
                await connection.execute(SQL["give_up"], *key, self._database.time())
            elif status == "pending":
                await connection.execute(SQL["drop"], *key, "discarded", None, True, self._database.time())
            return status in ("failed", "pending")

        return await self._database.transact(work)

    async def depth(self) -> int:
        return sum([(await self._database.read(SQL["depth"], shard))[0][0] for shard in self._shards])

    async def counts(self, tenant: str) -> list[OperationCount]:
        return [
            OperationCount(**row) for row in await self._database.read(SQL["counts"], tenant, self._database.time())
        ]

    async def backlogs(self, tenant: str, *, limit: int = 100) -> list[OperationBacklog]:
        return [
            OperationBacklog(*row) for row in await self._database.read(SQL["backlogs"], self._shards, tenant, limit)
        ]

    async def clean(self, *, older_than_seconds: int, failed_seconds: int = 0, limit: int = 10_000) -> int:
        [[now]] = await self._database.read("SELECT coalesce($1, clock_timestamp())", self._database.time())
        age = timedelta(seconds=older_than_seconds)
        newest = least_uuid7(now // 1000 - older_than_seconds * 1000)
        cleaned = 0
        for shard in self._shards:
            arguments = (shard, newest, age, self._database.time(), limit - cleaned)
            cleaned += len(await self._database.write(SQL["clean"], *arguments))
            if cleaned >= limit:
                break
        for shard in self._shards if failed_seconds else ():
            age = timedelta(seconds=failed_seconds)
            cleaned += len(await self._database.write(SQL["clean_failed"], shard, age, self._database.time(), limit))
        return cleaned


class _NotEnqueued(Exception):
    """The rollback of a retry."""

    def __init__(self, result: EnqueueResult) -> None:
        super().__init__()
        self.result = result
