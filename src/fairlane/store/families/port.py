"""The port: all that a family asks of a database, and where its statements are.

A statement is asked for as `family.name`. Its values go by name; a list is an array on PostgreSQL and JSON on SQLite.
On SQLite one that begins with `-- Each:` is run for each element of its lists.
What PostgreSQL does in a function that a statement calls, SQLite may do in one of Python's: `sqlite.port` has them by
the statement's name. `:now` is always there: a test's clock, or on PostgreSQL NULL for the database's own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cache
from importlib.resources import files
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.moment import Moment, moment_or_none
from fairlane.store.contract.operations import EnqueueResult, NewOperation
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice
from fairlane.store.statements import load

if TYPE_CHECKING:
    from fairlane.store.codec import Codec

T = TypeVar("T")
Row = Any
"""Columns by position."""
Value = str | int | float | bytes | bool | UUID | Sequence[Any] | None


class View(Protocol):
    """Statements that belong together."""

    async def run(self, statement: str, /, **values: Value) -> list[Row]: ...


class Transaction(View, Protocol):
    """One transaction. Whoever is given one awaits nothing else: on SQLite all other writes wait for it."""

    async def lock(self, statement: str, /, **values: Value) -> None:
        """Lock rows on PostgreSQL. Nobody else writes on SQLite, which has no such statement."""
        ...

    async def hold(self, slices: Sequence[Slice], partitions: Sequence[PartitionId] = ()) -> None:
        """Lock the partitions of slices that are to be pushed, and further ones, in the one order of locks."""
        ...

    async def push(self, slices: Sequence[Slice]) -> list[PushResult]: ...

    async def enqueue(self, some: Sequence[NewOperation]) -> list[EnqueueResult]: ...


Work = Callable[[Transaction], Coroutine[Any, Any, T]]


async def nothing(transaction: Transaction) -> None: ...


class Port(Protocol):
    shards: Sequence[int]
    """All there are: the one 0 on SQLite, which has nothing of any other."""

    @property
    def codec(self) -> Codec: ...

    async def read(self, statement: str, /, **values: Value) -> list[Row]: ...

    async def write(self, statement: str, /, **values: Value) -> list[Row]:
        """Run one statement as a transaction of its own."""
        ...

    async def view(self, work: Callable[[View], Coroutine[Any, Any, T]]) -> T:
        """Several reads that belong together: on SQLite of one snapshot."""
        ...

    async def transact(self, work: Work[T]) -> T:
        """All that `work` does, or nothing if it raises. It may be run again from its start."""
        ...

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
        """`Messages.transact` and more in one transaction: `begin` before every lock, `check` when partitions are
        locked and nothing was done yet, `also` after all of it was applied; `locked` are further partitions to lock.
        Each may refuse it by raising, and is undone where nothing is applied."""
        ...


class Family:
    def __init__(self, port: Port) -> None:
        self._port = port

    def _shard_of(self, queue_id: int) -> int:
        """Where all of a queue is."""
        return self._port.shards[queue_id % len(self._port.shards)]

    async def _read_all(self, statement: str, /, **values: Value) -> list[Row]:
        """The rows of every shard."""
        return [row for shard in self._port.shards for row in await self._port.read(statement, shard=shard, **values)]


def statements(dialect: str) -> dict[str, str]:
    """The statements of all families, from files `family.dialect.sql`."""
    names = [file.name for file in files(__package__).iterdir() if file.name.endswith(f".{dialect}.sql")]
    return {
        f"{name.partition('.')[0]}.{statement}": text
        for name in names
        for statement, text in load(__package__, name).items()
    }


def value(found: list[Row]) -> Any:
    """The first column of the first row, None without one."""
    return found[0][0] if found else None


def struct(type: Callable[..., T], row: Row) -> T:
    """A struct from a row that has its fields in their order. A named tuple (a partition, a lease) is a column for each
    of its parts; a list or struct may be JSON."""
    columns = iter(row)
    return type(**{name: read(columns) for name, read in _readers(type)})


def one(type: Callable[..., T], found: list[Row]) -> T | None:
    return struct(type, found[0]) if found else None


@cache
def _readers(type: Any) -> list[tuple[str, Callable[[Iterator[Any]], Any]]]:
    hints = get_type_hints(type)
    names = type._fields if hasattr(type, "_fields") else type.__struct_fields__
    return [(name, _reader(hints[name])) for name in names]


def _reader(hint: Any) -> Callable[[Iterator[Any]], Any]:
    """Takes what it needs of the columns."""
    if get_origin(hint) is UnionType and NoneType in get_args(hint):
        hint = next(arg for arg in get_args(hint) if arg is not NoneType)
    if hasattr(hint, "_fields"):
        return lambda columns: struct(hint, [next(columns) for _ in hint._fields])
    if hint is Moment:
        return lambda columns: moment_or_none(next(columns))
    if hint is bool:
        return lambda columns: bool(next(columns))
    if hint is msgspec.Raw:
        return lambda columns: msgspec.Raw(next(columns).encode())
    if hint is UUID:
        return lambda columns: _uuid(next(columns))
    if get_origin(hint) is list or isinstance(hint, msgspec.StructMeta):
        decode = msgspec.json.Decoder(hint, dec_hook=lambda kind, value: kind(value)).decode  # moments
        return lambda columns: decode(found) if isinstance(found := next(columns), str) else found
    return next


def _uuid(found: UUID | bytes) -> UUID:
    return UUID(bytes=found) if isinstance(found, bytes) else found


_encode = msgspec.json.Encoder(enc_hook=int).encode  # moments are numbers here


def as_json(value: object) -> str:
    return _encode(value).decode()
