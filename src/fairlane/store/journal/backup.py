"""The journal of a broker in a backup: reading its entries while the broker runs, and putting them back."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import apsw

from fairlane.errors import StoreUnavailable
from fairlane.store.journal.files import SQL, Leftover, Use, connect
from fairlane.store.sqlite.connection import open_reader
from fairlane.store.sqlite.rows import rows, write_rows


def read_entries(directory: Path) -> list[tuple[Any, ...]]:
    """Return the entries of all journal files of a directory, each without its sequence number."""
    found: list[tuple[Any, ...]] = []
    for path in sorted(directory.glob("journal-*.db")):
        with closing(open_reader(str(path))) as db:
            if rows(db, "select 1 from sqlite_schema where name = 'entries'"):
                found += [row[1:] for row in rows(db, SQL["next"], -1)]
    return found


def put_entries(directory: Path, entries: list[tuple[Any, ...]]) -> int:
    """Put entries of a backup into a directory, before later entries that are there. Returns how many were missing.

    A crash may leave an entry in two files. Applying it twice is harmless.
    """
    if not entries:
        return 0
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    existing = sorted(directory.glob("journal-*.db"))
    there = {row[-1] for row in read_entries(directory)}
    numbers = {int(path.stem.rpartition("-")[2]) for path in existing}
    use = Use(directory / f"journal-{next(number for number in count() if number not in numbers)}.db")
    if not use.try_exclusive():
        raise StoreUnavailable(f"a broker has just started on {directory}; stop it and try again")
    try:
        with closing(connect(use.path)) as db:
            _append(db, entries)
            known = {row[-1] for row in entries}
            for path in existing:
                _move_entries(path, db, known)
    finally:
        use.end()
    return len({row[-1] for row in entries} - there)


def _move_entries(path: Path, db: apsw.Connection, known: set[bytes]) -> None:
    left = Leftover.open(path)
    if left is None:
        raise StoreUnavailable(f"a broker uses {path}; stop it and try again")
    try:
        while found := left.read():
            _append(db, [row[1:] for row in found if row[-1] not in known])
            left.drop(found)
    finally:
        left.close()


def _append(db: apsw.Connection, entries: list[tuple[Any, ...]]) -> None:
    db.execute("begin immediate")
    write_rows(db, SQL["append"], entries)
    db.execute("commit")
