"""Opening of the SQLite file: its lock, the settings that make a commit durable, the schema."""

from __future__ import annotations

import logging
import os
from typing import Final

import apsw

from fairlane.errors import StoreRefused, StoreUnavailable, StoreUnsafe
from fairlane.runtime.process import LockFile, make_private, warning_of
from fairlane.store.sqlite.migrate import migrate

MEMORY: Final = ":memory:"
BUSY_MS: Final = 5_000
CHECKPOINT_PAGES: Final = 10_000  # 40 MB of log: one checkpoint writes each changed page once for many commits
LOG_BYTES_MAX: Final = 64 * 1024 * 1024
STATEMENTS_CACHED: Final = 256  # more than there are, so that none is prepared twice
SAFE_VERSION: Final = (3, 51, 3)  # earlier versions can damage a file if a checkpoint and a write coincide
_log = logging.getLogger(__name__)


def lock(path: str) -> LockFile:
    """Lock a database by its lock file.

    Raises StoreUnavailable if another broker holds it or it cannot be opened, and StoreRefused if its directory does
    not exist.
    """
    name, directory = f"{path}.lock", os.path.dirname(path)
    if directory and not os.path.isdir(directory):
        raise StoreRefused(f"there is no directory {directory}; make it, or name another file as the store")
    try:
        return LockFile(name)
    except BlockingIOError:
        raise StoreUnavailable(
            f"{path} is open in another broker, which holds {name}; use PostgreSQL for several brokers on one store"
        ) from None
    except (OSError, ValueError) as error:
        raise StoreUnavailable(f"the lock file {name} cannot be opened: {error}") from None


def open_writer(path: str) -> apsw.Connection:
    """Open the writing connection, check its settings and upgrade its schema."""
    if not is_safe():
        _log.warning("SQLite %s may damage the file under load; use 3.51.3 or newer", apsw.sqlite_lib_version())
    if path != MEMORY:
        make_private(path)  # its log and index files get the same mode
        if warning := warning_of(path):
            _log.warning("%s", warning)
    db = apsw.Connection(path, statementcachesize=STATEMENTS_CACHED)
    try:
        _set_up(db)
        if path != MEMORY:
            make_durable(db)
            # A process whose disk failed may have left pages of the log only in the page cache, so write them again.
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        migrate(db)
    except BaseException:
        db.close()
        raise
    return db


def is_safe() -> bool:
    """Return True if a checkpoint and a write on two connections may coincide."""
    return tuple(map(int, apsw.sqlite_lib_version().split(".")[:3])) >= SAFE_VERSION


def open_reader(path: str) -> apsw.Connection:
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY, statementcachesize=STATEMENTS_CACHED)
    _set_up(db)
    return db


def _set_up(db: apsw.Connection) -> None:
    db.set_busy_timeout(BUSY_MS)
    # Otherwise a statement is planned again for each new value bound to it, which costs ten times its run.
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def make_durable(db: apsw.Connection) -> None:
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "full")
    db.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
    db.pragma("journal_size_limit", LOG_BYTES_MAX)
    db.pragma("cache_size", -48 * 1024)
    check_durable(db)


def check_durable(db: apsw.Connection) -> None:
    """Raise StoreUnsafe unless a commit survives a power cut. Some file systems, for example, do not support WAL."""
    for name, wanted in (("journal_mode", "wal"), ("synchronous", 2)):
        found = db.pragma(name)
        if found != wanted:
            raise StoreUnsafe(
                f"SQLite runs {db.filename} with {name} {found!r} where {wanted!r} is needed to be durable"
            )
