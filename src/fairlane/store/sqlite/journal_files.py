"""The journal files of a directory: one for each process that was there at once, under a lock.

A process takes the first that nobody has locked. What processes that are gone left in the others is moved into a file
whose process lives, in the order in which it was accepted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from fairlane.errors import StoreUnavailable
from fairlane.runtime.lock_file import LockFile
from fairlane.runtime.private_file import make_private
from fairlane.store.sqlite.connection import lock as lock_beside
from fairlane.store.sqlite.connection import make_durable
from fairlane.store.sqlite.faults import translate
from fairlane.store.sqlite.rows import rows, value
from fairlane.store.statements import load

JOURNALS_MAX: Final = 256
SQL: Final = load("fairlane.store.sqlite", "journal.sql")
_STEP: Final = 100  # entries that are moved at once: each may be as large as a request


def take(directory: Path) -> tuple[apsw.Connection, LockFile, Path]:
    """The first file that nobody has locked."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"the journal's directory {directory} cannot be made: {error}") from None
    lock, path = _first_free(directory)
    try:
        db = _connect(path)
        try:
            _sync(directory)
        except BaseException:
            db.close()
            raise
    except apsw.Error as error:
        lock.release()
        raise translate(error) from error
    except BaseException:
        lock.release()
        raise
    return db, lock, path


def _first_free(directory: Path) -> tuple[LockFile, Path]:
    for number in range(JOURNALS_MAX):
        path = directory / f"journal-{number}.db"
        with contextlib.suppress(StoreUnavailable):
            return lock_beside(str(path)), path
    raise StoreUnavailable(f"no journal in {directory} can be had: each is locked by another process, or not writable")


def _connect(path: Path) -> apsw.Connection:
    make_private(str(path))
    db = apsw.Connection(str(path))
    try:
        db.set_busy_timeout(5_000)
        make_durable(db)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        db.execute(SQL["schema"])
        if not value(db, SQL["has_ids"]):  # a file of an earlier version
            db.execute(SQL["add_ids"])
        db.execute(SQL["index_ids"])
    except BaseException:
        db.close()
        raise
    return db


def _sync(directory: Path) -> None:
    """A file that was made is durable only once its directory is."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def others(own: Path) -> list[Path]:
    return sorted(path for path in own.parent.glob("journal-*.db") if path != own)


class Leftover:
    """A file whose process is gone, with entries in it. An entry is dropped here only when it is durable elsewhere: a
    crash in between leaves it in both files, and a replay is harmless."""

    def __init__(self, db: apsw.Connection, lock: LockFile) -> None:
        self._db = db
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> Leftover | None:
        """None if its process lives, or there is nothing in it."""
        try:
            lock = lock_beside(str(path))
        except StoreUnavailable:
            return None
        db: apsw.Connection | None = None
        try:
            db = _connect(path)
            if value(db, SQL["any"]):
                return cls(db, lock)
        except BaseException:
            _let_go(db, lock)
            raise
        _let_go(db, lock)
        return None

    def read(self) -> list[tuple[Any, ...]]:
        """The next entries, each after its sequence number."""
        return list(rows(self._db, SQL["next"], _STEP))

    def drop(self, entries: Sequence[tuple[Any, ...]]) -> None:
        rows(self._db, SQL["drop"], entries[-1][0])

    def close(self) -> None:
        _let_go(self._db, self._lock)


def _let_go(db: apsw.Connection | None, lock: LockFile) -> None:
    try:
        if db is not None:
            db.close()
    finally:
        lock.release()
