"""The query runner, which gives a family its database.

A statement is named `family.name`. Values are passed by name; a list is an array on PostgreSQL and JSON on SQLite.
SQLite runs a statement that begins with `-- Each:` once for each element of its lists. Where PostgreSQL calls a
function, SQLite may call Python instead: those steps are methods of a `Dialect`. `:now` is always bound: to a test's
clock, or on PostgreSQL to NULL for the database's own clock.
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
from fairlane.store.contract.values import AckResult, LaneAck, PushResult, ScheduledSlice, Slice
from fairlane.store.statements import PACKAGES, load

if TYPE_CHECKING:
    from fairlane.store.codec import Codec
    from fairlane.store.families.dialect import Dialect

T = TypeVar("T")
Row = Any
"""A row, with its columns by position."""
Value = str | int | float | bytes | bool | UUID | Sequence[Any] | None


class View(Protocol):
    """A group of reads that belong together."""

    dialect: Dialect

    async def run(self, statement: str, /, **values: Value) -> list[Row]: ...


class DatabaseTransaction(View, Protocol):
    """A transaction. Its body must await nothing else, because on SQLite all other writes wait for it."""

    async def lock(self, statement: str, /, **values: Value) -> None:
        """Lock rows on PostgreSQL. A no-op on SQLite, which has a single writer."""
        ...

    async def hold(self, slices: Sequence[Slice], partitions: Sequence[PartitionId] = ()) -> None:
        """Lock the partitions of `slices` and `partitions`, in lock order."""
        ...

    async def push(self, slices: Sequence[Slice]) -> list[PushResult]: ...

    async def enqueue(self, some: Sequence[NewOperation]) -> list[EnqueueResult]: ...


TransactionBody = Callable[[DatabaseTransaction], Coroutine[Any, Any, T]]
AppliedBody = Callable[[DatabaseTransaction, Sequence[PushResult]], Coroutine[Any, Any, None]]
"""A step at the end of a transaction, which gets the results of its pushes."""


async def no_op(transaction: DatabaseTransaction) -> None: ...


async def no_more(transaction: DatabaseTransaction, pushed: Sequence[PushResult]) -> None: ...


class QueryRunner(Protocol):
    reads: Dialect
    """Steps that are each one read."""
    writes: Dialect
    """Steps that are each one transaction."""

    @property
    def codec(self) -> Codec: ...

    async def read(self, statement: str, /, **values: Value) -> list[Row]: ...

    async def write(self, statement: str, /, **values: Value) -> list[Row]:
        """Run one statement as a transaction of its own."""
        ...

    async def view(self, work: Callable[[View], Coroutine[Any, Any, T]]) -> T:
        """Run several reads. On SQLite they see one snapshot."""
        ...

    async def transact(self, work: TransactionBody[T]) -> T:
        """Run `work` in a transaction and roll back if it raises. `work` may run more than once."""
        ...

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
        """Run `Messages.transact` with further steps in the same transaction.

        `begin` runs before any lock is taken, `check` once the partitions are locked, and `also` after everything is
        applied. `locked` names further partitions to lock. A step that raises rolls the transaction back.
        """
        ...


class Family:
    def __init__(self, runner: QueryRunner) -> None:
        self._runner = runner


def statements(dialect: str) -> dict[str, str]:
    """Load the statements of all families, by `family.name`."""
    return {
        f"{file.name.removesuffix('.sql')}.{statement}": text
        for package in PACKAGES
        for file in files(package).iterdir()
        if file.name.endswith(".sql")
        for statement, text in load(package, file.name, dialect).items()
    }


def value(found: list[Row]) -> Any:
    """Return the first column of the first row, or None without rows."""
    return found[0][0] if found else None


def struct(type: Callable[..., T], row: Row) -> T:
    """Build a struct from a row whose columns are its fields in order.

    A partition takes one column, a lease one for each of its fields. A list or struct may be JSON.
    """
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
    """Return a function that takes the columns of one field."""
    if get_origin(hint) is UnionType and NoneType in get_args(hint):
        hint = next(arg for arg in get_args(hint) if arg is not NoneType)
    if hint is PartitionId:
        return lambda columns: PartitionId.of(next(columns))
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
