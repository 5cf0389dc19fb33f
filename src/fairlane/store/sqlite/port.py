"""The port of the small families on SQLite. What they await is done at once, in the thread that has the database."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import apsw

from fairlane.store.codec import Codec
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice
from fairlane.store.families.port import Row, Value, statements
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.messages import transact

T = TypeVar("T")
SQL = statements("sqlite")


class Transaction:
    def __init__(self, db: apsw.Connection, now: int) -> None:
        self.db = db
        self.now = now

    async def run(self, statement: str, /, **values: Value) -> list[Row]:
        return _run(self.db, self.now, statement, values)


class Port:
    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def codec(self) -> Codec:
        return self._database.codec

    async def read(self, statement: str, /, **values: Value) -> list[Row]:
        return await self._database.read(lambda db, now: _run(db, now, statement, values))

    async def write(self, statement: str, /, **values: Value) -> list[Row]:
        return await self._database.write(lambda db, now: _run(db, now, statement, values))

    async def transact(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> T:
        return await self._database.write(lambda db, now: _finish(work(Transaction(db, now))))

    async def transact_messages(
        self,
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        *,
        begin: Callable[[Transaction], Coroutine[Any, Any, None]],
    ) -> tuple[list[AckResult], list[PushResult]]:
        acks, slices = await self.codec.seal_all(acks, slices)
        return await self._database.write(
            lambda db, now: transact(db, now, acks, slices, begin=lambda: _finish(begin(Transaction(db, now))))
        )


def _run(db: apsw.Connection, now: int, statement: str, values: dict[str, Value]) -> list[Row]:
    return db.execute(SQL[statement], {**values, "now": now}).fetchall()


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AssertionError("a transaction awaited something else than its statements")
