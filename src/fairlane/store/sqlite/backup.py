"""A backup of an SQLite store: one file with a consistent copy of the store and the entries of the journal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import apsw

from fairlane.errors import InvalidRequest, StoreCorrupt, StoreUnavailable
from fairlane.store.sqlite.connection import BUSY_MS, open_writer
from fairlane.store.sqlite.error_mapping import translate
from fairlane.store.sqlite.rows import first, rows, value, write_rows
from fairlane.store.statements import load

SQL: Final = load("fairlane.store.sqlite", "backup.sql")
FORMAT: Final = 1
_PROBLEMS_SHOWN: Final = 3


class Inventory(NamedTuple):
    """The inventory of a backup that was checked."""

    made_at: int
    """Microseconds since 1970."""
    counts: dict[str, int]


def copy_store(path: str, copy: str) -> None:
    """Write a consistent copy of a store to a new file. A broker may use the store meanwhile."""
    if not os.path.isfile(path):
        raise InvalidRequest(f"there is no store {path}; name it with --store or --config")
    with closing(_open_reader(path)) as db:
        if not value(db, "select count(*) from sqlite_schema where name = 'migrations'"):
            raise InvalidRequest(f"{path} is an SQLite database, but not a store of Fairlane")
        db.execute("vacuum into ?", (copy,))


def finish_copy(copy: str, entries: Sequence[tuple[Any, ...]], made_at: int) -> None:
    """Add the journal entries, the counts and the time of the backup to a copy."""
    with closing(apsw.Connection(copy)) as db:
        db.execute("begin immediate")
        db.execute(SQL["schema"])
        write_rows(db, SQL["add_entry"], entries)
        write_rows(db, SQL["add_count"], rows(db, SQL["counts"]))
        db.execute(SQL["describe"], (FORMAT, made_at))
        db.execute("commit")


def check_backup(file: str) -> Inventory:
    """Read a whole backup and return its inventory.

    Raises InvalidRequest if the file is not a backup, and StoreCorrupt if it is damaged or incomplete.
    """
    if not os.path.isfile(file):
        raise InvalidRequest(f"there is no backup {file}")
    try:
        with closing(_open_reader(file)) as db:
            return _check(db, file)
    except apsw.NotADBError:
        raise InvalidRequest(f"{file} is not a backup; `fairlane backup` makes one") from None
    except apsw.CorruptError as error:
        raise StoreCorrupt(f"the backup {file} is damaged: {error}") from None


def _check(db: apsw.Connection, file: str) -> Inventory:
    if not value(db, "select count(*) from sqlite_schema where name = 'backup'"):
        raise InvalidRequest(f"{file} is an SQLite database, but not a backup; `fairlane backup` makes one")
    format, made_at = first(db, SQL["description"])
    if format != FORMAT:
        raise InvalidRequest(f"the backup {file} has format {format}, and this version reads {FORMAT}; use a newer one")
    problems = [text for (text,) in rows(db, f"pragma integrity_check({_PROBLEMS_SHOWN})") if text != "ok"]
    if problems:
        raise StoreCorrupt(f"the backup {file} is damaged: {'; '.join(problems)}")
    for partition, position, checksum, body in db.execute(SQL["bodies"]):
        if crc32(body) != checksum:
            raise StoreCorrupt(
                f"the backup {file} is damaged: messages from position {position} of partition {partition!r} do not "
                "match their checksum"
            )
    found, recorded = dict(rows(db, SQL["counts"])), dict(rows(db, SQL["recorded"]))
    if found != recorded:
        name = next(name for name in recorded if found.get(name) != recorded[name])
        raise StoreCorrupt(f"the backup {file} is incomplete: it has {found.get(name)} {name} of {recorded[name]}")
    return Inventory(made_at, found)


def journal_entries(file: str) -> list[tuple[Any, ...]]:
    """Return the journal entries of a backup, in their order."""
    with closing(_open_reader(file)) as db:
        return rows(db, SQL["entries"])


def make_store(copy: str) -> None:
    """Turn a copy of a backup into a store that a broker can open.

    Raises StoreUnsafe if this version cannot open it.
    """
    with closing(apsw.Connection(copy)) as db:
        db.execute("begin immediate")
        db.execute(SQL["strip"])
        db.execute("commit")
    open_writer(copy).close()  # closing merges the write-ahead log into the file


def rename_replaced(path: str) -> str | None:
    """Rename a store and its write-ahead log. Returns the new name, or None if there is no store.

    The log goes last: a store without its log lacks commits, and a log without a store is never read.
    """
    number = 1
    while os.path.exists(f"{path}.replaced-{number}"):
        number += 1
    aside = f"{path}.replaced-{number}"
    existed = os.path.exists(path)
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.rename(path + suffix, aside + suffix)
    return aside if existed else None


def remove_copy(copy: Path) -> None:
    """Remove an unfinished copy, if there is one."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{copy}{suffix}").unlink(missing_ok=True)


@contextmanager
def reported(file: Path) -> Iterator[None]:
    """Raise errors of SQLite and of the disk as errors that name the file."""
    try:
        yield
    except apsw.Error as error:
        raise type(named := translate(error))(f"{file}: {named}") from error
    except OSError as error:
        raise StoreUnavailable(f"{file} cannot be written: {error.strerror or error}") from error


def _open_reader(path: str) -> apsw.Connection:
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    db.set_busy_timeout(BUSY_MS)
    return db
