"""The port of the families on SQLite. What they await is done at once, in the thread that has the database."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import apsw

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.store.codec import Codec
from fairlane.store.contract.operations import EnqueueResult, NewOperation
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice
from fairlane.store.families.port import Row, Value, Work, as_json, nothing, statements
from fairlane.store.sqlite import browse, groups, operations, queues, retention, scheduled
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.messages import transact
from fairlane.store.sqlite.push import push

T = TypeVar("T")
SQL = statements("sqlite")
STEPS: Final[dict[str, Callable[..., Any]]] = {
    "browse.back": browse.back,
    "browse.dead_letter": browse.dead_letter,
    "browse.delete": browse.delete,
    "browse.forget_ids": browse.forget_ids,
    "browse.trim": browse.trim,
    "browse.with_id": browse.with_id,
    "operations.claim": operations.claim,
    "groups.seed": groups.seed,
    "groups.subscribe": groups.subscribe,
    "groups.seek": groups.seek,
    "groups.preview_seek": groups.preview_seek,
    "pauses.resume_lanes": groups.resume_lanes,
    "queues.born": queues.born,
    "queues.purge": queues.purge,
    "queues.unfinished": groups.unfinished,
    "retention.expire": retention.expire,
    "scheduled.change": scheduled.change,
}
"""By statement: what PostgreSQL does in a function. Each answers with rows, or with one value."""


class Transaction:
    def __init__(self, db: apsw.Connection, now: int) -> None:
        self.db = db
        self.now = now

    async def run(self, statement: str, /, **values: Value) -> list[Row]:
        return _run(self.db, self.now, statement, values)

    async def lock(self, statement: str, /, **values: Value) -> None:
        """There is one writer."""

    async def hold(self, slices: Sequence[Slice], partitions: Sequence[PartitionId] = ()) -> None:
        """Nor is there anything to lock here."""

    async def push(self, slices: Sequence[Slice]) -> list[PushResult]:
        return push(self.db, self.now, slices)

    async def enqueue(self, some: Sequence[NewOperation]) -> list[EnqueueResult]:
        return [operations.enqueue(self.db, self.now, one) for one in some]


class Port:
    shards: Sequence[int] = (0,)

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def codec(self) -> Codec:
        return self._database.codec

    async def read(self, statement: str, /, **values: Value) -> list[Row]:
        return await self._database.read(lambda db, now: _run(db, now, statement, values))

    async def write(self, statement: str, /, **values: Value) -> list[Row]:
        return await self._database.write(lambda db, now: _run(db, now, statement, values))

    async def view(self, work: Work[T]) -> T:
        return await self._database.read(lambda db, now: _finish(work(Transaction(db, now))))

    async def transact(self, work: Work[T]) -> T:
        return await self._database.write(lambda db, now: _finish(work(Transaction(db, now))))

    async def transact_messages(
        self,
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        *,
        begin: Work[None],
        check: Work[None] = nothing,
        also: Work[None] = nothing,
        locked: Sequence[PartitionId] = (),
    ) -> tuple[list[AckResult], list[PushResult]]:
        def work(db: apsw.Connection, now: int) -> tuple[list[AckResult], list[PushResult]]:
            transaction = Transaction(db, now)

            def prepare() -> None:
                _finish(begin(transaction))
                _finish(check(transaction))

            return transact(db, now, acks, slices, begin=prepare, also=lambda: _finish(also(transaction)))

        acks, slices = await self.codec.seal_all(acks, slices)
        return await self._database.write(work)


def _run(db: apsw.Connection, now: int, statement: str, values: dict[str, Value]) -> list[Row]:
    if values.get("shard"):
        return []
    if (step := STEPS.get(statement)) is not None:
        found = step(db, now, **values)
        return found if isinstance(found, list) else [(found,)]
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
    """The result of a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise AssertionError("a transaction awaited something else than its statements")
