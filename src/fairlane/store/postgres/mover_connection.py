"""Connections of a mover, which copy rows of a table from one database to another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from tempfile import SpooledTemporaryFile
from typing import Any, NamedTuple

import asyncpg

from fairlane.errors import Conflict, LaneLocked, OutcomeUnknown
from fairlane.store.postgres.connection import LOST, TRANSIENT, connect, prepare, reason_of, translated
from fairlane.store.postgres.driver import SCHEMA, check_replicated, in_schema

MEMORY_BYTES = 32 * 1024 * 1024
"""Rows up to this size are kept in memory, larger ones in a temporary file."""
_SETTINGS = (
    "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '10s'; SET LOCAL enable_seqscan = off;"
    "SET LOCAL idle_in_transaction_session_timeout = '60s'"
)
_TAKEN_OVER = "FL002"
"""SQLSTATE of our functions when another process has become the mover."""


class StoredColumn(NamedTuple):
    """A column that is stored, and its place in the key of its table. Keys do not include the epoch."""

    table: str
    name: str
    key: bool


class CopiedRows(NamedTuple):
    """Rows in PostgreSQL's binary format."""

    number: int
    bytes: int
    file: Any


class MoverConnection:
    """A connection to a cell, outside of its pool. No exception of the driver leaves it."""

    def __init__(self, connection: asyncpg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    async def fetch(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        with _mapped():
            return list(await self._connection.fetch(statement, *arguments))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        with _mapped():
            async with self._connection.transaction():
                await self._connection.execute(_SETTINGS)
                yield
            check_replicated(self._connection)

    async def copy_out(self, query: str, *arguments: object) -> CopiedRows:
        """Return the rows of a query."""
        file = SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115  # the caller reads it
        try:
            with _mapped():
                status = await self._connection.copy_from_query(
                    in_schema(query, self._schema), *arguments, output=file, format="binary"
                )
            number, size = int(status.split()[-1]), file.tell()
            file.seek(0)
        except BaseException:
            file.close()
            raise
        if not number:
            file.close()
        return CopiedRows(number, size, file)

    async def copy_in(self, table: str, columns: list[str], rows: CopiedRows, *, temporary: bool = False) -> None:
        """Insert rows into a table."""
        if not rows.number:
            return
        with closing(rows.file), _mapped():
            await self._connection.copy_to_table(
                table,
                schema_name=None if temporary else self._schema,
                columns=columns,
                source=rows.file,
                format="binary",
            )


@contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except asyncpg.PostgresError as error:
        if error.sqlstate == _TAKEN_OVER:
            raise Conflict("another process took over this move; nothing more was done here") from error
        if error.sqlstate in TRANSIENT:
            raise LaneLocked(f"the queue is in use: {error}") from error
        raise translated(error, OutcomeUnknown) from error
    except LOST as error:
        raise OutcomeUnknown(f"the connection to the database was lost during a move: {reason_of(error)}") from error


@asynccontextmanager
async def connect_mover(url: str, schema: str = SCHEMA) -> AsyncIterator[MoverConnection]:
    """Open a connection. Raises StoreUnavailable if that fails."""
    connection = await connect(url, schema)
    try:
        with _mapped():
            await prepare(connection)
        yield MoverConnection(connection, schema)
    finally:
        connection.terminate()
