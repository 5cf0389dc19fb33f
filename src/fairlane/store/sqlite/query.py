"""The query runner on SQLite. Statements run at once, in the thread that owns the database."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from uuid import UUID

import apsw

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.store.codec import Codec
from fairlane.store.contract.operations import EnqueueResult, NewOperation
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, ScheduledSlice, Slice
from fairlane.store.families.dialect import Dialect
from fairlane.store.families.query import (
    AppliedBody,
    Row,
    TransactionBody,
    Value,
    as_json,
    no_more,
    no_op,
    statements,
)
from fairlane.store.sqlite import operations
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.dialect import SqliteDialect
from fairlane.store.sqlite.messages import transact
from fairlane.store.sqlite.push import push

T = TypeVar("T")
SQL = statements("sqlite")


class DatabaseTransaction:
    def __init__(self, db: apsw.Connection, now: int) -> None:
        self.db = db
        self.now = now
        self.dialect: Dialect = SqliteDialect(self._step)

    async def _step(self, step: Callable[[apsw.Connection, int], T]) -> T:
        return step(self.db, self.now)

    async def run(self, statement: str, /, **values: Value) -> list[Row]:
        return _run(self.db, self.now, statement, values)

    async def lock(self, statement: str, /, **values: Value) -> None:
        """No-op: SQLite has a single writer."""

    async def hold(self, slices: Sequence[Slice], partitions: Sequence[PartitionId] = ()) -> None:
        """No-op: SQLite has a single writer."""

    async def push(self, slices: Sequence[Slice]) -> list[PushResult]:
        return push(self.db, self.now, slices)

    async def enqueue(self, some: Sequence[NewOperation]) -> list[EnqueueResult]:
        return [operations.enqueue(self.db, self.now, one) for one in some]


class QueryRunner:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.reads: Dialect = SqliteDialect(database.read)
        self.writes: Dialect = SqliteDialect(database.write)

    @property
    def codec(self) -> Codec:
        return self._database.codec

    async def read(self, statement: str, /, **values: Value) -> list[Row]:
        return await self._database.read(lambda db, now: _run(db, now, statement, values))

    async def write(self, statement: str, /, **values: Value) -> list[Row]:
        return await self._database.write(lambda db, now: _run(db, now, statement, values))

    async def view(self, work: TransactionBody[T]) -> T:
        return await self._database.read(lambda db, now: _finish(work(DatabaseTransaction(db, now))))

    async def transact(self, work: TransactionBody[T]) -> T:
        return await self._database.write(lambda db, now: _finish(work(DatabaseTransaction(db, now))))

    async def transact_messages(
        self,
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        *,
        begin: TransactionBody[None],
        check: TransactionBody[None] = no_op,
        also: AppliedBody = no_more,
        locked: Sequence[PartitionId] = (),
        scheduled: Sequence[ScheduledSlice] = (),
    ) -> tuple[list[AckResult], list[PushResult]]:
        def work(db: apsw.Connection, now: int) -> tuple[list[AckResult], list[PushResult]]:
            transaction = DatabaseTransaction(db, now)

            def prepare() -> None:
                _finish(begin(transaction))
                _finish(check(transaction))

            return transact(
                db, now, acks, slices, later, begin=prepare, also=lambda pushed: _finish(also(transaction, pushed))
            )

        acks, slices = await self.codec.seal_all(acks, slices)
        later = await self.codec.seal_scheduled(scheduled) if scheduled else ()
        return await self._database.write(work)


def _run(db: apsw.Connection, now: int, statement: str, values: dict[str, Value]) -> list[Row]:
    text = SQL[statement]
    bound = {"now": now, "never": NEVER_AT}
    if text.startswith("-- Each:"):
        columns = {name: value for name, value in values.items() if isinstance(value, list)}
        bound |= {name: _bound(value) for name, value in values.items() if name not in columns}
        each = [
            bound | dict(zip(columns, map(_bound, row), strict=True)) for row in zip(*columns.values(), strict=True)
        ]
        return db.executemany(text, each).fetchall()
    return db.execute(text, bound | {name: _bound(value) for name, value in values.items()}).fetchall()


def _bound(value: Value) -> Any:
    if isinstance(value, list | tuple):
        return as_json(value)
    return value.bytes if isinstance(value, UUID) else value


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits and return its result."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AssertionError("a transaction awaited something else than its statements")
