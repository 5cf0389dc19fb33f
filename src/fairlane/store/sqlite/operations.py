"""Operations on SQLite: accepted, claimed and applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import apsw

from fairlane.model.ids import PartitionId
from fairlane.model.operation import PRIORITIES, TIMEOUT_SECONDS
from fairlane.store import statements
from fairlane.store.contract.operations import (
    Application,
    ApplyResult,
    Closed,
    Enqueued,
    EnqueueResult,
    Lost,
    NewOperation,
)
from fairlane.store.contract.values import AckResult, Full, Gone, Stored
from fairlane.store.families import operations
from fairlane.store.families.query import QueryRunner
from fairlane.store.sqlite.ack import ack_one
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.groups import SQL as QUEUES
from fairlane.store.sqlite.lanes import ADD_DEPTH, parse_options
from fairlane.store.sqlite.push import push
from fairlane.store.sqlite.rows import first, rows, value

SQL = statements.load("fairlane.store.sqlite", "operations.sql")


class Operations(operations.Operations):
    def __init__(self, runner: QueryRunner, database: Database) -> None:
        super().__init__(runner)
        self._database = database

    async def enqueue(self, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        sealed = [await self._runner.codec.seal_operation(one) for one in operations]
        return await self._database.write(lambda db, now: enqueue_all(db, now, sealed))

    async def apply(self, work: Sequence[Application]) -> list[ApplyResult]:
        sealed = [await self._runner.codec.seal_application(one) for one in work]
        return await self._database.write(lambda db, now: [_apply(db, now, each) for each in sealed])


def enqueue_all(db: apsw.Connection, now: int, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
    """Enqueue all operations. A repeated one does not overtake another of its partition that did not fit."""
    results: list[EnqueueResult] = []
    full: dict[PartitionId, Full] = {}
    for new in operations:
        ahead = full.get(new.partition) if new.messages else None
        result = ahead or enqueue(db, now, new)
        if isinstance(result, Full) and new.created_at is not None:
            full[new.partition] = result
        results.append(result)
    return results


def enqueue(db: apsw.Connection, now: int, new: NewOperation) -> EnqueueResult:
    key = (new.partition.id, new.group_id)
    if value(db, SQL["known"], new.id.bytes):
        return Enqueued(max(1, value(db, SQL["backlog_open"], *key) or 0))
    row = first(db, SQL["partition"], new.partition.id)
    if row is None or row[0] != new.queue_id:
        return Gone()
    sequence = row[1]
    text, depth = first(db, QUEUES["options_and_depth"], new.queue_id)
    capacity = parse_options(text).max_size
    if capacity and not new.options.max_size:
        return Gone()  # the caller does not know yet that it may be refused
    if capacity and new.messages:
        if depth + new.messages > capacity:
            return Full(depth, capacity)
        depth += new.messages
        db.execute(ADD_DEPTH, (new.messages, new.queue_id))
    names = (new.tenant, new.queue, new.partition_name, new.group)
    priority = PRIORITIES[new.type]
    db.execute(
        SQL["insert"],
        (
            *(*key, sequence, new.id.bytes, new.type, priority, *names, new.queue_id),
            *(new.payload, len(new.payload), new.messages, min(new.created_at or now, now)),
        ),
    )
    db.execute(SQL["count_in"], key)
    db.execute(SQL["lengthen"], (*key, new.queue_id, *names, priority, new.messages, sequence, now))
    limits = (depth, capacity) if capacity else (None, None)
    return Enqueued(value(db, SQL["backlog_open"], *key), *limits)


def claim(
    db: apsw.Connection, now: int, worker: str, token: UUID, *, backlogs: int, run: int, bytes: int
) -> list[tuple[Any, ...]]:
    claimed, timeout = [], TIMEOUT_SECONDS * 1_000_000
    for partition_id, group_id, sequence in rows(db, SQL["ready"], now, timeout, backlogs):
        key = (partition_id, group_id)
        db.execute(SQL["take"], (now + timeout, token.bytes, *key))
        size = 0
        for found, length in rows(db, SQL["run"], *key, sequence, run):
            if size >= bytes:
                break
            size += length
            claimed.append(first(db, SQL["begin"], now, worker, *key, found))
    return claimed


def _apply(db: apsw.Connection, now: int, work: Application) -> ApplyResult:
    """Apply operations.

    Their own backlog does not block them, and the capacity that they reserved is released first.
    """
    claim = work.claim
    key = (claim.partition.id, claim.group_id)
    if value(db, SQL["claim_token"], *key) != claim.token.bytes:
        return Lost()
    db.execute("savepoint operation")
    open_before = value(db, SQL["open"], claim.partition.id) or 0
    result: ApplyResult = Closed()
    if work.messages:
        db.execute(SQL["set_open"], (0, claim.partition.id))
        db.execute(SQL["add_depth"], (-work.messages, claim.partition.id))
    if work.slice is not None:
        [result] = push(db, now, [work.slice])
    elif work.ack is not None:
        result = ack_one(db, now, work.ack, waited=True)
    if work.applied_by(result):
        texts = work.results(result if isinstance(result, Stored | AckResult) else None)
        for sequence, text in zip(work.sequences, texts, strict=True):
            db.execute(SQL["complete"], (now, text, *key, sequence))
        if claim.group_id == 0:
            db.execute(SQL["set_open"], (open_before - len(work.sequences), claim.partition.id))
        db.execute(SQL["advance"], (len(work.sequences), work.messages, work.sequences[-1] + 1, now, *key))
        db.execute(SQL["forget_backlog"], key)
    else:
        db.execute("rollback to operation")
    db.execute("release operation")
    return result
