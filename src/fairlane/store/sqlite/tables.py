"""All rows of a stopped SQLite store, to move them to another store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from struct import Struct
from typing import Any, Final

import apsw

from fairlane.errors import InvalidRequest, StoreRefused, StoreUnavailable
from fairlane.store.sqlite.connection import lock, open_writer
from fairlane.store.sqlite.error_mapping import translate
from fairlane.store.sqlite.rows import first, rows
from fairlane.store.statements import load

SQL: Final = load("fairlane.store.sqlite", "tables.sql")
_SEGMENT: Final = Struct(">qiq").pack
"""The part of a segment's hash before its body: first position, number of messages, time."""


class SqliteTables:
    """A snapshot of a store that no broker has open."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def names(self) -> set[str]:
        return {name for (name,) in rows(self._db, SQL["tables"])}

    def columns(self, table: str) -> set[str]:
        return {name for (name,) in rows(self._db, SQL["columns"], table)}

    def count(self, table: str) -> int:
        return int(first(self._db, f"select count(*) from {table}")[0])  # noqa: S608

    def rows(self, table: str, expressions: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table in the order of its key, with these columns."""
        yield from self._db.execute(f"select {', '.join(expressions)} from {table}")  # noqa: S608

    def sequences(self) -> dict[str, int]:
        """Return the last id of each table whose ids are never reused."""
        return dict(rows(self._db, SQL["sequences"]))

    def log_hashes(self) -> Iterator[tuple[int, str]]:
        """Yield a hash of the log of each partition that has messages."""
        current, whole = None, sha256()
        for partition, position, count, created_at, body in self._db.execute(SQL["log"]):
            if partition != current:
                if current is not None:
                    yield current, whole.hexdigest()
                current, whole = partition, sha256()
            whole.update(sha256(_SEGMENT(position, count, created_at) + body).digest())
        if current is not None:
            yield current, whole.hexdigest()

    def lanes(self) -> Iterator[tuple[Any, ...]]:
        """Yield the progress of each group in each partition."""
        yield from self._db.execute(SQL["lanes"])


@contextmanager
def open_tables(path: str) -> Iterator[SqliteTables]:
    """Open a store for moving. Raises StoreUnavailable if a broker uses it or has not finished its work."""
    if not os.path.isfile(path):
        raise InvalidRequest(f"there is no store {path}; name the file that the broker used")
    try:
        held = lock(os.path.realpath(path))
    except StoreRefused:
        raise
    except StoreUnavailable as error:
        raise StoreUnavailable(f"stop the broker of {path} first: {error}") from None
    try:
        db = open_writer(path)  # also applies its write-ahead log
        try:
            db.execute("begin")
            _check_finished(db, path)
            yield SqliteTables(db)
        finally:
            db.close()
    except apsw.Error as error:
        raise type(named := translate(error))(f"{path}: {named}") from error
    finally:
        held.release()


def _check_finished(db: apsw.Connection, path: str) -> None:
    operations, purges, seeding = first(db, SQL["unfinished"])
    what = []
    if operations:
        what.append(f"{operations} accepted pushes and acks are not applied (`fairlane operation list`)")
    if purges:
        what.append(f"{purges} deleted queues are not removed")
    if seeding:
        what.append(f"{seeding} new groups do not have all their lanes")
    if what:
        raise StoreUnavailable(f"{path} is unfinished: {', '.join(what)}; run its broker until it has finished them")
