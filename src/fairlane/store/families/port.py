"""The port: all that a small family asks of a database, and where its statements are.

A statement is asked for as `family.name`. Its values go by name and are scalars; a list goes as JSON, which both
dialects can unpack. `:now` is always there: a test's clock, or on PostgreSQL NULL for the database's own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from fairlane.store.contract.values import AckResult, LaneAck, PushResult, Slice
from fairlane.store.statements import load

if TYPE_CHECKING:
    from fairlane.store.codec import Codec

T = TypeVar("T")
Row = Any
"""Columns by position."""
Value = str | int | bytes | bool | None


class Transaction(Protocol):
    """One transaction. Whoever is given one awaits nothing else: on SQLite all other writes wait for it."""

    async def run(self, statement: str, /, **values: Value) -> list[Row]: ...


Tx = TypeVar("Tx", bound=Transaction)
Tx_co = TypeVar("Tx_co", bound=Transaction, covariant=True)


class Port(Protocol[Tx_co]):
    @property
    def codec(self) -> Codec: ...

    async def read(self, statement: str, /, **values: Value) -> list[Row]: ...

    async def write(self, statement: str, /, **values: Value) -> list[Row]:
        """Run one statement as a transaction of its own."""
        ...

    async def transact(self, work: Callable[[Tx_co], Coroutine[Any, Any, T]]) -> T:
        """All that `work` does, or nothing if it raises. It may be run again from its start."""
        ...

    async def transact_messages(
        self,
        acks: Sequence[LaneAck],
        slices: Sequence[Slice],
        *,
        begin: Callable[[Tx_co], Coroutine[Any, Any, None]],
    ) -> tuple[list[AckResult], list[PushResult]]:
        """`Messages.transact` with `begin` before it, in one transaction. `begin` may refuse it by raising, and is
        undone where nothing is applied."""
        ...


def statements(dialect: str) -> dict[str, str]:
    """The statements of all families, from files `family.dialect.sql`."""
    names = [file.name for file in files(__package__).iterdir() if file.name.endswith(f".{dialect}.sql")]
    return {
        f"{name.partition('.')[0]}.{statement}": text
        for name in names
        for statement, text in load(__package__, name).items()
    }


def struct(type: Callable[..., T], row: Row) -> T:
    """A struct from a row that has its fields in their order."""
    names = type.__struct_fields__  # type: ignore[attr-defined]
    return type(**dict(zip(names, row, strict=True)))


_encode = msgspec.json.Encoder(enc_hook=int).encode  # moments are numbers here


def as_json(value: object) -> str:
    return _encode(value).decode()
