"""The application of operations: their effect and their end are one transaction, fenced by the claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import asyncpg

from fairlane.store.contract.operations import Application, ApplyResult, Closed, Lost
from fairlane.store.contract.values import AckResult, Stored
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import Messages
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "operations.sql")


class OperationApplier:
    def __init__(self, database: Database, messages: Messages) -> None:
        self._database = database
        self._messages = messages

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
