"""Rows of an SQLite store: a snapshot beside a running broker, a scratch store for an import, and a target."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

import apsw

from fairlane.errors import InvalidRequest, StoreRefused, StoreUnavailable
from fairlane.store.exchange.snapshot import condition, order
from fairlane.store.sqlite.connection import BUSY_MS, lock, open_writer
from fairlane.store.sqlite.error_mapping import translate
from fairlane.store.sqlite.migrate import migrate
from fairlane.store.sqlite.rows import first, rows
from fairlane.store.statements import load

SQL: Final = load("fairlane.store.sqlite", "tables.sql")


class SqliteRows:
    """The rows of one connection, which has an open transaction."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def tables(self) -> set[str]:
        return {name for (name,) in rows(self._db, SQL["tables"])}

    def columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table and their types."""
        return {name: kind.lower() for name, kind in rows(self._db, SQL["typed_columns"], table)}

    async def rows(self, table: str, queue_id: int | None = None) -> AsyncIterator[dict[str, Any]]:
        names = list(self.columns(table))
        selected = ", ".join(f'"{name}"' for name in names)
        where = "" if queue_id is None else f" where {condition(table, '?').replace('fairlane.', '')}"
        values = () if queue_id is None else (queue_id,)
        for row in self._db.execute(f"select {selected} from {table}{where}{order(table)}", values):  # noqa: S608
            yield dict(zip(names, row, strict=True))

    async def reserve(self, table: str, count: int) -> list[int]:
        last = first(self._db, SQL["last_id"], table)
        if last is None:
            last = first(self._db, f"select coalesce(max(id), 0) from {table}")  # noqa: S608
        return list(range(last[0] + 1, last[0] + 1 + count))

    async def insert(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        names, marks = ", ".join(f'"{name}"' for name in rows[0]), ", ".join("?" * len(rows[0]))
        statement = f"insert into {table} ({names}) values ({marks})"  # noqa: S608
        self._db.executemany(statement, [tuple(row.values()) for row in rows])

    async def commit(self) -> None:
        self._db.execute("commit")
        self._db.execute("begin immediate")

    def add(self, table: str, row: dict[str, Any]) -> int:
        """Add one row. Returns its id. Raises ValueError if it does not fit the table."""
        names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
        try:
            self._db.execute(f"insert into {table} ({names}) values ({marks})", tuple(row.values()))  # noqa: S608
        except (apsw.ConstraintError, apsw.MismatchError) as error:
            raise ValueError(str(error)) from None
        return self._db.last_insert_rowid()


@contextmanager
def snapshot(path: str) -> Iterator[SqliteRows]:
    """Open one moment of a store, which a broker may use."""
    if not os.path.isfile(path):
        raise InvalidRequest(f"there is no store {path}; name it with --store or --config")
    with _named(path), closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as db:
        db.set_busy_timeout(BUSY_MS)
        db.execute("begin")
        yield SqliteRows(db)


@contextmanager
def scratch() -> Iterator[SqliteRows]:
    """Open an empty store in a temporary file, for the rows of an import."""
    with closing(apsw.Connection("")) as db:
        migrate(db)
        db.execute("begin")
        db.execute("delete from tenants")
        yield SqliteRows(db)


@contextmanager
def adding(path: str) -> Iterator[SqliteRows]:
    """Open a store that no broker uses, to add rows. Commits at the end.

    If the block fails, the rows that were added since the last commit are not stored.
    """
    try:
        held = lock(os.path.realpath(path))
    except StoreRefused:
        raise
    except StoreUnavailable as error:
        reason = str(error).partition("; ")[0]
        raise StoreUnavailable(f"stop the broker, then import: {reason}") from None
    try:
        with _named(path), closing(open_writer(path)) as db:
            db.execute("begin immediate")
            yield SqliteRows(db)
            db.execute("commit")
    finally:
        held.release()


@contextmanager
def _named(path: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise type(named := translate(error))(f"{path}: {named}") from error
