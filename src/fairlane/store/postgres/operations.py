"""Operations on PostgreSQL: accepted, and applied in the transaction that completes them, fenced by the claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

from fairlane.model.operation import PRIORITIES
from fairlane.store.contract.operations import (
    Application,
    ApplyResult,
    Closed,
    Enqueued,
    EnqueueResult,
    Lost,
    NewOperation,
)
from fairlane.store.contract.values import AckResult, Full, Gone, PartitionLocked, Stored
from fairlane.store.families import operations
from fairlane.store.families.query import QueryRunner
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import Messages, in_lock_order
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "operations.sql")


def _enqueued(row: asyncpg.Record) -> EnqueueResult:
    if row["state"] == "enqueued":
        return Enqueued(row["queue_position"], row["depth"], row["capacity"])
    return Full(row["depth"], row["capacity"]) if row["state"] == "full" else Gone()


async def enqueue_on(run: Callable[..., Any], some: Sequence[NewOperation], now: int | None) -> list[EnqueueResult]:
    """Enqueue operations with `run`, in its own transaction or inside another."""
    rows = await run(
        SQL["enqueue"],
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
        now,
    )
    results: list[EnqueueResult] = [Gone()] * len(some)
    for row in rows:
        results[row["item"] - 1] = _enqueued(row)
    return results


class Operations(operations.Operations):
    def __init__(self, runner: QueryRunner, database: Database, messages: Messages) -> None:
        super().__init__(runner)
        self._database = database
        self._messages = messages

    async def enqueue(self, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        sealed = [await self._database.codec.seal_operation(one) for one in operations]
        return await self._messages.locked.run_unlocked(sealed, self._enqueue, PartitionLocked()) if sealed else []

    async def _enqueue(self, some: Sequence[NewOperation]) -> list[EnqueueResult]:
        return await enqueue_on(self._database.write, some, self._database.time())

    async def apply(self, work: Sequence[Application]) -> list[ApplyResult]:
        work = [await self._database.codec.seal_application(one) for one in work]
        return await in_lock_order(work, lambda one: (one.claim.partition.id, one.claim.group_id), self._apply)

    async def _apply(self, work: list[Application]) -> list[ApplyResult]:
        async def run(connection: asyncpg.Connection[Any]) -> list[ApplyResult]:
            slices = [one.slice for one in work if one.slice is not None]
            acks = [one.ack for one in work if one.ack is not None]
            await self._messages.lock(connection, acks, slices, [one.claim.partition for one in work])
            backlogs = ([one.claim.partition.id for one in work], [one.claim.group_id for one in work])
            messages = [one.messages for one in work]
            tokens = [one.claim.token for one in work]
            claimed = await connection.fetch(SQL["begin"], *backlogs, tokens, messages)
            items, opens = [row["item"] for row in claimed], [row["open"] for row in claimed]
            results = await self._effects(connection, work, [item - 1 for item in items])
            applied = [work[item - 1].applied_by(results[item - 1]) for item in items]
            done = _done(work, results, [item - 1 for item, ok in zip(items, applied, strict=True) if ok])
            now = self._database.time()
            await connection.execute(SQL["finish"], *backlogs, messages, items, opens, applied, *done, now)
            return results

        return await self._messages.locked.transact([one.claim for one in work], run)

    async def _effects(
        self, connection: asyncpg.Connection[Any], work: list[Application], claimed: list[int]
    ) -> list[ApplyResult]:
        results: list[ApplyResult] = [Lost()] * len(work)
        for index in claimed:
            results[index] = Closed()
        pushes = [index for index in claimed if work[index].slice is not None]
        if pushes:
            slices = [part for index in pushes if (part := work[index].slice) is not None]
            stored = await self._messages.push_on(connection.fetch, slices)
            results = _put(results, pushes, stored)
        ack_indexes = [index for index in claimed if work[index].ack is not None]
        if ack_indexes:
            acks = [ack for index in ack_indexes if (ack := work[index].ack) is not None]
            acked = await self._messages.ack_on(connection.fetch, acks)
            results = _put(results, ack_indexes, acked)
        return results


def _put(results: list[ApplyResult], indexes: list[int], found: Sequence[ApplyResult]) -> list[ApplyResult]:
    for index, result in zip(indexes, found, strict=True):
        results[index] = result
    return results


def _done(
    work: list[Application], results: list[ApplyResult], applied: list[int]
) -> tuple[list[int], list[int], list[bytes]]:
    """Return completed operations as columns: number of the backlog, sequence, result."""
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
