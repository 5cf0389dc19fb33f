"""Operations on PostgreSQL: accepted, and applied in the transaction that ends them, fenced by the claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import asyncpg

from fairlane.model.operation import PRIORITIES, TIMEOUT_SECONDS
from fairlane.store.contract.operations import (
    Application,
    ApplyResult,
    Closed,
    Enqueued,
    EnqueueResult,
    Lost,
    NewOperation,
)
from fairlane.store.contract.values import AckResult, Full, Gone, Locked, Stored
from fairlane.store.families import operations
from fairlane.store.families.port import Port
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import Messages, by_shard
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "operations.sql")


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
        [one.created_at for one in some],
        TIMEOUT_SECONDS,
        now,
    )
    results: list[EnqueueResult] = [Gone()] * len(some)
    for row in rows:
        results[row["item"] - 1] = _enqueued(row)
    return results


class Operations(operations.Operations):
    def __init__(self, port: Port, database: Database, messages: Messages) -> None:
        super().__init__(port)
        self._database = database
        self._messages = messages

    async def enqueue(self, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        locked: EnqueueResult = Locked()

        async def run(shard: int, some: list[NewOperation]) -> list[EnqueueResult]:
            return await self._messages.locked.around(some, partial(self._enqueue, shard), locked)

        sealed = [await self._database.codec.seal_operation(one) for one in operations]
        return await by_shard(sealed, lambda one: (0, 0), run)  # in the order in which they came

    async def _enqueue(self, shard: int, some: Sequence[NewOperation]) -> list[EnqueueResult]:
        return await enqueue_shard(self._database.write, shard, some, self._database.time())

    async def apply(self, work: Sequence[Application]) -> list[ApplyResult]:
        work = [await self._database.codec.seal_application(one) for one in work]
        results: dict[int, ApplyResult] = {}
        by_shard: dict[int, list[int]] = defaultdict(list)
        for index, one in enumerate(work):
            by_shard[one.claim.partition.shard].append(index)
        for shard in sorted(by_shard):
            # By partition and group, as all locks are taken.
            indexes = sorted(
                by_shard[shard], key=lambda index: (work[index].claim.partition, work[index].claim.group_id)
            )
            results.update(
                zip(indexes, await self._apply_shard(shard, [work[index] for index in indexes]), strict=True)
            )
        return [results[index] for index in range(len(work))]

    async def _apply_shard(self, shard: int, work: list[Application]) -> list[ApplyResult]:
        async def run(connection: asyncpg.Connection[Any]) -> list[ApplyResult]:
            slices = [one.slice for one in work if one.slice is not None]
            acks = [one.ack for one in work if one.ack is not None]
            await self._messages.lock(connection, acks, slices, [one.claim.partition for one in work])
            backlogs = ([one.claim.partition.id for one in work], [one.claim.group_id for one in work])
            messages = [one.messages for one in work]
            tokens = [one.claim.token for one in work]
            claimed = await connection.fetch(SQL["begin"], shard, *backlogs, tokens, messages)
            items, opens = [row["item"] for row in claimed], [row["open"] for row in claimed]
            results = await self._effects(connection, shard, work, [item - 1 for item in items])
            applied = [work[item - 1].applied_by(results[item - 1]) for item in items]
            done = _done(work, results, [item - 1 for item, ok in zip(items, applied, strict=True) if ok])
            now = self._database.time()
            await connection.execute(SQL["finish"], shard, *backlogs, messages, items, opens, applied, *done, now)
            return results

        return await self._messages.locked.transact([one.claim for one in work], run)

    async def _effects(
        self, connection: asyncpg.Connection[Any], shard: int, work: list[Application], claimed: list[int]
    ) -> list[ApplyResult]:
        results: list[ApplyResult] = [Lost()] * len(work)
        for index in claimed:
            results[index] = Closed()
        pushes = [index for index in claimed if work[index].slice is not None]
        if pushes:
            slices = [part for index in pushes if (part := work[index].slice) is not None]
            stored = await self._messages.push_shard(connection.fetch, shard, slices)
            results = _put(results, pushes, stored)
        ack_indexes = [index for index in claimed if work[index].ack is not None]
        if ack_indexes:
            acks = [ack for index in ack_indexes if (ack := work[index].ack) is not None]
            acked = await self._messages.ack_shard(connection.fetch, shard, acks)
            results = _put(results, ack_indexes, acked)
        return results


def _put(results: list[ApplyResult], indexes: list[int], found: Sequence[ApplyResult]) -> list[ApplyResult]:
    for index, result in zip(indexes, found, strict=True):
        results[index] = result
    return results


def _done(
    work: list[Application], results: list[ApplyResult], applied: list[int]
) -> tuple[list[int], list[int], list[bytes]]:
    """Completed operations as columns: number of their backlog, sequence, result."""
    items: list[int] = []
    sequences: list[int] = []
    encoded: list[bytes] = []
    for index in applied:
        result = results[index]
        texts = work[index].results(result if isinstance(result, Stored | AckResult) else None)
        items += [index + 1] * len(work[index].sequences)
        sequences += work[index].sequences
        encoded += texts
    return items, sequences, encoded
