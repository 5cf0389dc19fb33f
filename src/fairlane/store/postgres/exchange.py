"""Rows of a PostgreSQL store, in the form of SQLite: a snapshot, and transactions that add rows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from struct import pack
from typing import Any, Final
from uuid import UUID

import asyncpg

from fairlane.errors import Conflict, StoreUnavailable
from fairlane.store.exchange.snapshot import condition, order
from fairlane.store.families.queues import SPECS, TENANTS
from fairlane.store.postgres.connection import connect, prepare
from fairlane.store.postgres.receive import CONVERSIONS, SQL, Column
from fairlane.store.postgres.store import PostgresStore

_EXPRESSIONS: Final = {
    ("partitions", "newest_id_at"): "greatest(newest_id_ms, 0) * 1000",
    ("partitions", "keyed_until"): "greatest(keyed_until_ms, 0) * 1000",
    ("partitions", "doubted_until"): "doubted_until_ms * 1000",
}
"""SQL for columns that are called or kept differently on PostgreSQL."""
_DERIVED: Final[dict[tuple[str, str], Callable[[dict[str, Any]], int]]] = {
    ("partitions", "newest_id_ms"): lambda row: _milliseconds(row["newest_id_at"]),
    ("partitions", "keyed_until_ms"): lambda row: _milliseconds(row["keyed_until"]),
    ("partitions", "doubted_until_ms"): lambda row: -(-int(row["doubted_until"]) // 1000),
    ("cursors", "lease_start"): lambda row: row["lease_start"] or 0,
    ("cursors", "lease_end"): lambda row: row["lease_end"] or 0,
}
"""The inverse: values of columns that SQLite calls or keeps differently."""
Columns = dict[str, dict[str, str]]
"""Columns of each table of an SQLite store, with their types."""


class PostgresRows:
    """The rows of one connection, which has an open transaction."""

    def __init__(self, connection: asyncpg.Connection[Any], tables: dict[str, list[Column]], columns: Columns) -> None:
        self._connection = connection
        self.tables = tables
        self._columns = columns
        self._numbers: dict[UUID, int] = {}
        """Numbers for the ids of scheduled segments, which are UUIDs only here."""

    async def rows(self, table: str, queue_id: int | None = None) -> AsyncIterator[dict[str, Any]]:
        wanted = self._columns[table]
        existing = {column.name for column in self.tables[table]}
        names = [name for name in wanted if name in existing or (table, name) in _EXPRESSIONS]
        selected = ", ".join(f"{_EXPRESSIONS.get((table, name), _quoted(name))} AS {_quoted(name)}" for name in names)
        where = "" if queue_id is None else f" WHERE {condition(table, '$1')}"
        values = () if queue_id is None else (queue_id,)
        statement = f"SELECT {selected} FROM fairlane.{table}{where}{order(table)}"  # noqa: S608
        async for row in self._connection.cursor(statement, *values, prefetch=200):
            yield {name: self._plain(value, wanted[name]) for name, value in row.items()}

    def _plain(self, value: Any, kind: str) -> Any:
        """Convert a value to its form on SQLite."""
        match value:
            case bool():
                return int(value)
            case UUID() if kind == "integer":
                return self._numbers.setdefault(value, len(self._numbers) + 1)
            case UUID():
                return value.bytes if kind == "blob" else str(value)
            case timedelta():
                return value // timedelta(microseconds=1)
            case list() if kind == "blob" and value and isinstance(value[0], int):
                return pack(f">{len(value)}q", *value)
            case list() if kind == "blob":
                return b"".join(bytes(16) if one is None else one.bytes for one in value)
            case list():
                return json.dumps(value, separators=(",", ":"))
        return value

    async def reserve(self, table: str, count: int) -> list[int]:
        if table == "scheduled_segments":
            return [UUID(bytes=(await self._random())).int for _ in range(count)]
        return [row[0] for row in await self._connection.fetch(SQL["next_ids"], f"fairlane.{table}", count)]

    async def _random(self) -> bytes:
        found: UUID = await self._connection.fetchval("SELECT gen_random_uuid()")
        return found.bytes

    async def insert(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        given = {*rows[0], *(name for of, name in _DERIVED if of == table)}
        columns = [column for column in self.tables[table] if column.name in given]
        records = [tuple(_value(table, column, row) for column in columns) for row in rows]
        names = [column.name for column in columns]
        await self._connection.copy_records_to_table(table, schema_name="fairlane", columns=names, records=records)
        if table == "segments":
            await self._connection.execute(
                SQL["measure"], [row["partition_id"] for row in rows], list(map(_largest, rows))
            )

    async def begin(self) -> None:
        self._transaction = self._connection.transaction()
        await self._transaction.start()
        await self._connection.execute(SQL["patient"])
        await self._connection.execute(SQL["one_import"])

    async def commit(self) -> None:
        await self.end()
        await self.begin()

    async def end(self) -> None:
        """Store the rows that were added, and make running brokers load the catalogue."""
        await self._connection.execute(SQL["announce"], [SPECS, TENANTS])
        await self._transaction.commit()


def _value(table: str, column: Column, row: dict[str, Any]) -> Any:
    """Convert a value to its form on PostgreSQL."""
    derive = _DERIVED.get((table, column.name))
    value = derive(row) if derive is not None else row[column.name]
    convert = CONVERSIONS.get(column.type)
    return value if value is None or convert is None else convert(value)


def _largest(segment: dict[str, Any]) -> int:
    """Return the size of the largest message of a segment."""
    ends: list[int] = json.loads(segment["ends"])
    return max(end - start for start, end in zip([0, *ends], ends, strict=False))


@asynccontextmanager
async def snapshot(url: str, columns: Columns) -> AsyncIterator[PostgresRows]:
    """Open one moment of a store, which brokers may use."""
    connection = await connect(url)
    try:
        await prepare(connection)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute(SQL["patient"])
            yield PostgresRows(connection, await _tables(connection), columns)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise StoreUnavailable(f"the store cannot be read: {error}") from error
    finally:
        connection.terminate()


@asynccontextmanager
async def adding(url: str, columns: Columns) -> AsyncIterator[PostgresRows]:
    """Open a store to add rows, beside running brokers. Commits at the end.

    If the block fails, the rows that were added since the last commit are not stored.
    """
    await (await PostgresStore.open(url)).close()  # creates the schema
    connection = await connect(url)
    try:
        await prepare(connection)
        rows = PostgresRows(connection, await _tables(connection), columns)
        await rows.begin()
        yield rows
        await rows.end()
    except asyncpg.UniqueViolationError as error:
        raise Conflict(f"another program created the same queue; run the import again: {error}") from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise StoreUnavailable(f"the store failed; run the import again, and it continues: {error}") from error
    finally:
        connection.terminate()


async def _tables(connection: asyncpg.Connection[Any]) -> dict[str, list[Column]]:
    found: dict[str, list[Column]] = {}
    for table, name, type, optional in await connection.fetch(SQL["columns"]):
        found.setdefault(table, []).append(Column(name, type, optional))
    return found


def _quoted(name: str) -> str:
    return f'"{name}"'


def _milliseconds(at: int) -> int:
    return at // 1000 if at > 0 else -1
