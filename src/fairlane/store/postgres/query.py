"""The query runner on PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import asyncpg

from fairlane.model.ids import PartitionId
from fairlane.store.codec import Codec
from fairlane.store.contract.operations import EnqueueResult, NewOperation
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, ScheduledSlice, Slice
from fairlane.store.families.dialect import Dialect
from fairlane.store.families.query import AppliedBody, Row, TransactionBody, Value, no_more, no_op, statements
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.dialect import PostgresDialect
from fairlane.store.postgres.messages import Messages, in_lock_order
from fairlane.store.postgres.operations import enqueue_on

T = TypeVar("T")
_NAME = re.compile(r"(?<![:\w]):([a-z_]+)")


def numbered(text: str) -> tuple[str, list[str]]:
    """Replace named parameters by numbers. Returns the statement and the names in the order of their numbers."""
    names = list(dict.fromkeys(_NAME.findall(text)))
    return _NAME.sub(lambda match: f"${names.index(match[1]) + 1}", text), names


SQL = {name: numbered(text) for name, text in statements("postgres").items()}


class View:
    """Reads, each in a transaction of its own."""

    def __init__(self, fetch: Callable[..., Awaitable[list[Row]]], now: int | None) -> None:
        self._fetch = fetch
        self._now = now
        self.dialect: Dialect = PostgresDialect(self.run)

    async def run(self, statement: str, /, **values: Value) -> list[Row]:
        return await self._fetch(*_call(statement, values, self._now))

    async def lock(self, statement: str, /, **values: Value) -> None:
        await self._fetch(*_call(statement, values, self._now))


class DatabaseTransaction(View):
    def __init__(self, connection: asyncpg.Connection[Any], now: int | None, messages: Messages) -> None:
        super().__init__(connection.fetch, now)
        self._connection = connection
        self._messages = messages

    async def hold(self, slices: Sequence[Slice], partitions: Sequence[PartitionId] = ()) -> None:
        await self._messages.lock(self._connection, [], slices, partitions)

    async def push(self, slices: Sequence[Slice]) -> list[PushResult]:
        return await in_lock_order(slices, _partition, partial(self._messages.push_on, self._fetch))

    async def enqueue(self, some: Sequence[NewOperation]) -> list[EnqueueResult]:
        return await in_lock_order(some, _partition, partial(enqueue_on, self._fetch, now=self._now))


def _partition(one: Slice | NewOperation) -> tuple[int, int]:
    return one.partition.id, 0


class QueryRunner:
    def __init__(self, database: Database, messages: Messages) -> None:
        self._database = database
        self._messages = messages
        self.reads: Dialect = PostgresDialect(self.read)
        self.writes: Dialect = PostgresDialect(self.write)

    @property
    def codec(self) -> Codec:
        return self._database.codec

    async def read(self, statement: str, /, **values: Value) -> list[Row]:
        return await self._database.read(*_call(statement, values, self._database.time()))

    async def write(self, statement: str, /, **values: Value) -> list[Row]:
        return await self._database.write(*_call(statement, values, self._database.time()))

    async def view(self, work: Callable[[View], Coroutine[Any, Any, T]]) -> T:
        return await work(View(self._database.read, self._database.time()))

    async def transact(self, work: TransactionBody[T]) -> T:
        return await self._database.transact(lambda connection: work(self._transaction(connection)))

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
        return await self._messages.transact(
            acks,
            slices,
            scheduled,
            begin=lambda connection: begin(self._transaction(connection)),
            check=lambda connection: check(self._transaction(connection)),
            also=lambda connection, pushed: also(self._transaction(connection), pushed),
            locked=locked,
        )

    def _transaction(self, connection: asyncpg.Connection[Any]) -> DatabaseTransaction:
        return DatabaseTransaction(connection, self._database.time(), self._messages)


def _call(statement: str, values: dict[str, Value], now: int | None) -> tuple[Any, ...]:
    text, names = SQL[statement]
    values = {**values, "now": now}
    return text, *[values[name] for name in names]
