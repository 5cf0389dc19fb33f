"""An empty PostgreSQL store that receives all rows of another store in one transaction."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from struct import unpack
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from fairlane.errors import FairlaneError, InvalidRequest, StoreUnavailable
from fairlane.store.postgres.connection import connect, prepare
from fairlane.store.postgres.store import PostgresStore
from fairlane.store.statements import load

SQL: Final = load("fairlane.store.postgres", "receive.sql")
_OWN: Final = ("migrations", "functions", "catalogue", "catalogue_changes", "leadership")
"""Tables about this database, not about its messages."""
_INITIAL: Final = ("tenants", "audit_head")
"""Tables with a row in every new store, which the received rows replace."""


def _uuid(value: Any) -> UUID:
    if isinstance(value, int):
        return UUID(int=value)
    return UUID(bytes=value) if isinstance(value, bytes) else UUID(value)


def _integers(value: Any) -> list[int]:
    return list(unpack(f">{len(value) // 8}q", value)) if isinstance(value, bytes) else json.loads(value)


def _uuids(value: bytes) -> list[UUID | None]:
    """Return the ids in packed bytes. Zeros mean no id."""
    parts = [value[at : at + 16] for at in range(0, len(value), 16)]
    return [UUID(bytes=part) if any(part) else None for part in parts]


CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "bool": bool,
    "uuid": _uuid,
    "_int4": _integers,
    "_int8": _integers,
    "_uuid": _uuids,
    "interval": lambda value: timedelta(microseconds=value),
}
"""Conversions of values by their type in PostgreSQL. Other types have the same values, also times."""


class Column(NamedTuple):
    """A column of a table, with its type in PostgreSQL."""

    name: str
    type: str
    optional: bool
    """True if it need not be given."""


class Receiver:
    """The transaction that receives a store. Nothing is visible before `received` ends."""

    def __init__(self, connection: asyncpg.Connection[Any], tables: dict[str, list[Column]]) -> None:
        self._connection = connection
        self.tables = tables
        """Columns of each table that receives rows."""

    async def copy(self, table: str, columns: list[str], records: Iterable[tuple[Any, ...]]) -> int:
        """Store the rows of a table. Returns their number."""
        status = await self._connection.copy_records_to_table(
            table, schema_name="fairlane", columns=columns, records=records
        )
        return int(status.split()[-1])

    async def count(self, table: str) -> int:
        return int(await self._connection.fetchval(f"SELECT count(*) FROM fairlane.{table}"))  # noqa: S608

    async def continue_ids(self, table: str, last: int) -> None:
        """Continue the ids of a table after `last`, so that none is used twice."""
        await self._connection.execute("SELECT setval(pg_get_serial_sequence($1, 'id'), $2)", f"fairlane.{table}", last)

    async def log_hashes(self) -> AsyncIterator[tuple[int, str]]:
        """Yield a hash of the log of each partition that has messages."""
        async for row in self._connection.cursor(SQL["log_hashes"]):
            yield row[0], row[1]

    async def lanes(self) -> AsyncIterator[tuple[Any, ...]]:
        """Yield the progress of each group in each partition."""
        async for row in self._connection.cursor(SQL["lanes"], prefetch=1000):
            yield tuple(row)


@asynccontextmanager
async def receiving(url: str) -> AsyncIterator[Receiver]:
    """Open an empty store and receive into it. Commits at the end of the block, and stores nothing if it fails.

    Raises InvalidRequest if the store has rows, and StoreUnavailable if a broker uses it.
    """
    await (await PostgresStore.open(url)).close()  # creates the schema
    connection = await connect(url)
    try:
        await prepare(connection)
        if brokers := await connection.fetchval(SQL["brokers"]):
            raise StoreUnavailable(f"brokers use the target, over {brokers} connections; stop them first")
        async with connection.transaction():
            await connection.execute(SQL["begin"])
            tables = await _tables(connection)
            await _check_empty(connection, tables)
            for table in _INITIAL:
                await connection.execute(f"DELETE FROM fairlane.{table}")  # noqa: S608
            yield Receiver(connection, tables)
            await connection.execute(SQL["advance"])
        await connection.execute("ANALYZE")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise StoreUnavailable(f"the target failed, and nothing was stored: {error}") from error
    finally:
        try:
            await connection.close(timeout=10)
        except (TimeoutError, OSError, asyncpg.InterfaceError, FairlaneError):
            connection.terminate()


async def _tables(connection: asyncpg.Connection[Any]) -> dict[str, list[Column]]:
    found: dict[str, list[Column]] = {}
    for table, name, type, optional in await connection.fetch(SQL["columns"]):
        if table not in _OWN:
            found.setdefault(table, []).append(Column(name, type, optional))
    return found


async def _check_empty(connection: asyncpg.Connection[Any], tables: Iterable[str]) -> None:
    for table in tables:
        least = 1 if table in _INITIAL else 0
        if await connection.fetchval(f"SELECT count(*) > {least} FROM fairlane.{table}"):  # noqa: S608
            raise InvalidRequest(f"the target is not empty: its table {table} has rows; name an empty database")
