"""Operations, on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import apsw
import msgspec

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
from fairlane.store import statements
from fairlane.store.contract.operations import (
    BACKLOGS_MAX,
    FIRST,
    PAGES,
    RUN_BYTES_MAX,
    RUN_MAX,
    Application,
    AppliedOperation,
    ApplyResult,
    BacklogClaim,
    ClaimedBacklog,
    Closed,
    Enqueued,
    EnqueueResult,
    Lost,
    NewOperation,
)
from fairlane.store.contract.values import AckResult, Full, Gone, Stored
from fairlane.store.sqlite.ack import ack_one
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.groups import SQL as QUEUES
from fairlane.store.sqlite.lanes import ADD_DEPTH, parse_options
from fairlane.store.sqlite.push import push
from fairlane.store.sqlite.rows import first, rows, value

SQL = statements.load("fairlane.store.sqlite", "operations.sql")
_MINUTES_SHOWN_US = 5 * 60 * 1_000_000


class Operations:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def enqueue(self, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        sealed = [await self._database.codec.seal_operation(one) for one in operations]
        return await self._database.write(lambda db, now: [enqueue(db, now, each) for each in sealed])

    async def claim(
        self, worker: str, *, backlogs: int = BACKLOGS_MAX, token: UUID | None = None
    ) -> list[ClaimedBacklog]:
        named = token or uuid4()
        found = await self._database.write(lambda db, now: _claim(db, now, worker, backlogs, named))
        return await self._database.codec.open_backlogs(found, self.postpone)

    async def give_back(self, token: UUID) -> int:
        return await self._database.write(lambda db, now: len(rows(db, SQL["give_back"], now, token.bytes)))

    async def apply(self, work: Sequence[Application]) -> list[ApplyResult]:
        sealed = [await self._database.codec.seal_application(one) for one in work]
        return await self._database.write(lambda db, now: [_apply(db, now, each) for each in sealed])

    async def postpone(self, claims: Sequence[BacklogClaim], *, delay_ms: int, error: str) -> int:
        return await self._database.write(
            lambda db, now: sum([_postpone(db, now + delay_ms * 1000, claim, error) for claim in claims])
        )

    async def fail(self, claim: BacklogClaim, sequences: Sequence[int], error: str, *, delay_ms: int) -> int:
        return await self._database.write(lambda db, now: _fail(db, now, claim, sequences, error, delay_ms))

    async def record(self, applied: Sequence[AppliedOperation]) -> None:
        await self._database.write(lambda db, now: db.executemany(SQL["record"], [_row(one, now) for one in applied]))

    async def get(self, tenant: str, id: UUID) -> Operation | None:
        found = await self._database.read(lambda db, now: _get(db, tenant, id))
        return found and await self._database.codec.open_operation(found)

    async def page(
        self,
        tenant: str,
        *,
        status: OperationStatus | None = None,
        queue: str | None = None,
        after: UUID = FIRST,
        limit: int = 100,
    ) -> list[Operation]:
        def work(db: apsw.Connection, now: int) -> list[Operation]:
            found = rows(db, SQL[PAGES.get(status or "", "page")], tenant, after.bytes, status, queue, limit)
            return [_shown(db, tenant, id) for (id,) in found]

        return await self._database.read(work)

    async def failed(self, tenant: str) -> int:
        return await self._database.read(lambda db, now: int(value(db, SQL["count_failed"], tenant)))

    async def retry(self, tenant: str, id: UUID, anew: NewOperation) -> EnqueueResult | None:
        sealed = await self._database.codec.seal_operation(anew)

        def work(db: apsw.Connection, now: int) -> EnqueueResult | None:
            found = _get(db, tenant, id)
            if found is None or found.status != "failed":
                return None
            db.execute("savepoint again")
            db.execute(SQL["delete"], (found.partition.id, found.group_id, found.sequence))
            result = enqueue(db, now, sealed)
            db.execute(SQL["keep_created_at"], (found.created_at, id.bytes))
            if not isinstance(result, Enqueued):
                db.execute("rollback to again")
            db.execute("release again")
            return result

        return await self._database.write(work)

    async def discard(self, tenant: str, id: UUID) -> bool:
        def work(db: apsw.Connection, now: int) -> bool:
            found = _get(db, tenant, id)
            if found is None or found.status not in ("pending", "failed"):
                return False
            key = (found.partition.id, found.group_id)
            if found.status == "pending":
                _give_up_room(db, key, found.messages)
                db.execute(SQL["shorten"], (found.messages, *key))
                db.execute(SQL["forget_backlog"], key)
            db.execute(SQL["end"], ("discarded", now, *key, found.sequence))
            return True

        return await self._database.write(work)

    async def depth(self) -> int:
        return await self._database.read(lambda db, now: int(value(db, SQL["depth"])))

    async def counts(self, tenant: str) -> list[OperationCount]:
        def work(db: apsw.Connection, now: int) -> list[OperationCount]:
            return [OperationCount(*row) for row in rows(db, SQL["counts"], tenant, now - _MINUTES_SHOWN_US)]

        return await self._database.read(work)

    async def backlogs(self, tenant: str, *, limit: int = 100) -> list[OperationBacklog]:
        def work(db: apsw.Connection, now: int) -> list[OperationBacklog]:
            return [OperationBacklog(*row) for row in rows(db, SQL["backlogs"], tenant, limit)]

        return await self._database.read(work)

    async def clean(self, *, older_than_seconds: int, failed_seconds: int = 0, limit: int = 10_000) -> int:
        def work(db: apsw.Connection, now: int) -> int:
            before = now - older_than_seconds * 1_000_000
            db.execute(SQL["clean"], (least_uuid7(before // 1000).bytes, before, limit))
            cleaned = db.changes()
            if failed_seconds:
                db.execute(SQL["clean_failed"], (now - failed_seconds * 1_000_000, limit))
                cleaned += db.changes()
            return cleaned

        return await self._database.write(work)


def enqueue(db: apsw.Connection, now: int, new: NewOperation) -> EnqueueResult:
    key = (new.partition.id, new.group_id)
    if value(db, SQL["known"], new.id.bytes):
        return Enqueued(max(1, value(db, SQL["backlog_open"], *key) or 0))
    row = first(db, SQL["partition"], new.partition.id) if new.partition.shard == 0 else None
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
            *(new.payload, len(new.payload), new.messages, now, TIMEOUT_SECONDS),
        ),
    )
    db.execute(SQL["count_in"], key)
    db.execute(SQL["lengthen"], (*key, new.queue_id, *names, priority, new.messages, sequence, now))
    limits = (depth, capacity) if capacity else (None, None)
    return Enqueued(value(db, SQL["backlog_open"], *key), *limits)


def _claim(db: apsw.Connection, now: int, worker: str, backlogs: int, token: UUID) -> list[ClaimedBacklog]:
    claimed = []
    for partition_id, group_id, sequence in rows(db, SQL["ready"], now, backlogs):
        key = (partition_id, group_id)
        claim = BacklogClaim(PartitionId(0, partition_id), group_id, token)
        db.execute(SQL["take"], (now + TIMEOUT_SECONDS * 1_000_000, claim.token.bytes, *key))
        operations: list[Operation] = []
        size = 0
        for found, bytes_ in rows(db, SQL["run"], *key, sequence, 1 if group_id else RUN_MAX):
            if operations and size >= RUN_BYTES_MAX:
                break
            size += bytes_
            operations.append(_operation(first(db, SQL["begin"], now, worker, *key, found)))
        if operations:
            claimed.append(ClaimedBacklog(claim, operations[0].queue_id, operations))
    return claimed


def _holds(db: apsw.Connection, claim: BacklogClaim) -> bool:
    found: bool = value(db, SQL["claim_token"], claim.partition.id, claim.group_id) == claim.token.bytes
    return found


def _apply(db: apsw.Connection, now: int, work: Application) -> ApplyResult:
    """The pushes of the backlog pass, and their places are free, while its own messages are stored."""
    claim = work.claim
    key = (claim.partition.id, claim.group_id)
    if not _holds(db, claim):
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
        _advance(db, now, key, len(work.sequences), work.messages, work.sequences[-1] + 1)
    else:
        db.execute("rollback to operation")
    db.execute("release operation")
    return result


def _advance(db: apsw.Connection, now: int, key: tuple[int, int], ended: int, messages: int, sequence: int) -> None:
    db.execute(SQL["advance"], (ended, messages, sequence, now, *key))
    db.execute(SQL["forget_backlog"], key)


def _postpone(db: apsw.Connection, ready_at: int, claim: BacklogClaim, error: str | None) -> int:
    key = (claim.partition.id, claim.group_id)
    if not _holds(db, claim):
        return 0
    db.execute(SQL["postpone"], (ready_at, *key, claim.token.bytes))
    db.execute(SQL["wait_again"], (*key, error[:ERROR_CHARS_MAX] if error else None))
    return 1


def _fail(
    db: apsw.Connection, now: int, claim: BacklogClaim, sequences: Sequence[int], error: str, delay_ms: int
) -> int:
    if not _holds(db, claim):
        return 0
    key = (claim.partition.id, claim.group_id)
    given_up = 0
    for sequence in sequences:
        retries, messages = first(db, SQL["charge"], error[:ERROR_CHARS_MAX], now, *key, sequence)
        if retries > RETRIES_MAX:
            given_up += 1
            db.execute(SQL["end"], ("failed", now, *key, sequence))
            _give_up_room(db, key, messages)
            _advance(db, now, key, 1, messages, sequence + 1)
    if given_up:
        db.execute(SQL["wait_again"], (*key, error[:ERROR_CHARS_MAX]))
    else:
        _postpone(db, now + delay_ms * 1000, claim, error)
    return given_up


def _give_up_room(db: apsw.Connection, key: tuple[int, int], messages: int) -> None:
    partition_id, group_id = key
    db.execute(SQL["add_depth"], (-messages, partition_id))
    open_now = value(db, SQL["open"], partition_id)
    if open_now and group_id == 0:
        db.execute(SQL["set_open"], (open_now - 1, partition_id))


def _row(one: AppliedOperation, now: int) -> tuple[Any, ...]:
    return (
        *(one.partition.id, one.sequence, one.id.bytes, one.type, PRIORITIES[one.type]),
        *(one.tenant, one.queue, one.partition_name, one.group, one.messages),
        *(one.created_at, now, one.result),
    )


def _get(db: apsw.Connection, tenant: str, id: UUID) -> Operation | None:
    row = first(db, SQL["get"], id.bytes, tenant)
    return _operation(row) if row else None


def _shown(db: apsw.Connection, tenant: str, id: bytes) -> Operation:
    """One of a list, without its payload."""
    return msgspec.structs.replace(_operation(first(db, SQL["get"], id, tenant)), payload=b"")


def _operation(row: Any) -> Operation:
    partition_id, group_id, sequence, id, *rest = row
    names = (
        *("type", "priority", "tenant", "queue", "partition_name", "group", "queue_id", "payload", "size", "messages"),
        *("status", "created_at", "started_at", "processed_at", "worker", "retries", "error", "failed_at", "result"),
    )
    return Operation(
        id=UUID(bytes=id),
        partition=PartitionId(0, partition_id),
        group_id=group_id,
        sequence=sequence,
        **dict(zip(names, rest, strict=True)),
    )
