"""The journal on an SQLite file of its own: one fsync for all that waits, like the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from fairlane.errors import JournalFull, StoreFull, StoreUnavailable
from fairlane.model.queue import Queue
from fairlane.runtime.clock import SteadyClock
from fairlane.runtime.lock_file import LockFile
from fairlane.store.journal import ROW_BYTES, Entry, JournalState, Lane, NewEntry
from fairlane.store.sqlite.connection import lock as lock_beside
from fairlane.store.sqlite.connection import make_durable
from fairlane.store.sqlite.faults import translate
from fairlane.store.sqlite.rows import rows, value
from fairlane.store.sqlite.writer import Writer
from fairlane.store.statements import load

JOURNALS_MAX: Final = 256  # in one directory, one for each process that was there at once
RETRY_SECONDS: Final = 5.0
SQL: Final = load("fairlane.store.sqlite", "journal.sql")
_log = logging.getLogger(__name__)
_decode_queues = msgspec.json.Decoder(list[Queue]).decode


class SqliteJournal:
    """Open for one process. `open` takes the first file of the directory that nobody holds, and what processes that
    are gone left in the others."""

    def __init__(self, db: apsw.Connection, lock: LockFile, bytes_max: int) -> None:
        [measured] = rows(db, SQL["measure"])
        self._entries, self._messages, size, self._failed, self._oldest_at = measured
        self._bytes = size + (self._entries + self._failed) * ROW_BYTES
        """Of what is in the file or on its way there."""
        self._bytes_max = bytes_max
        self._writer = Writer(db, SteadyClock())
        self._lock = lock

    @classmethod
    async def open(cls, directory: str, *, bytes_max: int) -> SqliteJournal:
        """StoreUnavailable if no file there can be had, StoreUnsafe if it would not be durable."""
        db, lock = await asyncio.to_thread(_open, Path(directory))
        return cls(db, lock, bytes_max)

    async def append(self, entries: Sequence[NewEntry]) -> None:
        size = sum(entry.size for entry in entries)
        if size > self.room():
            raise JournalFull(
                f"the journal is full: {self._bytes} of {self._bytes_max} bytes are taken; it empties when the store "
                "is back",
                retry_after=RETRY_SECONDS,
            )
        self._bytes += size
        try:
            now = await self._writer.run(lambda db, now: _append(db, entries, now))
        except BaseException as error:
            self._bytes -= size
            if isinstance(error, StoreFull):
                raise JournalFull(f"the journal cannot grow: {error}", retry_after=RETRY_SECONDS) from None
            raise
        self._entries += len(entries)
        self._messages += sum(entry.messages for entry in entries)
        if self._oldest_at is None:
            self._oldest_at = now

    async def read(self, kind: str, after: int, *, entries_max: int, bytes_max: int) -> list[Entry]:
        return await self._writer.run(lambda db, _: _read(db, kind, after, entries_max, bytes_max))

    async def remove(self, entries: Sequence[Entry]) -> None:
        self._oldest_at = await self._writer.run(lambda db, _: _remove(db, entries))
        for entry in entries:
            self._bytes -= len(entry.body) + ROW_BYTES
            if entry.error is None:
                self._entries -= 1
                self._messages -= entry.messages
            else:
                self._failed -= 1

    async def fail(self, entry: Entry, error: str) -> None:
        self._oldest_at = await self._writer.run(lambda db, _: _fail(db, entry, error))
        self._entries -= 1
        self._messages -= entry.messages
        self._failed += 1

    async def failed(self, *, limit: int) -> list[Entry]:
        return await self._writer.run(lambda db, _: [_entry(row) for row in rows(db, SQL["failed"], limit)])

    async def retry(self, entry: Entry) -> bool:
        if not await self._writer.run(lambda db, _: _retry(db, entry)):
            return False
        self._entries += 1
        self._messages += entry.messages
        self._failed -= 1
        self._oldest_at = min(entry.created_at, self._oldest_at or entry.created_at)
        return True

    def room(self) -> int:
        return int(self._bytes_max - self._bytes)

    async def lanes(self) -> dict[Lane, int]:
        found = await self._writer.run(lambda db, _: rows(db, SQL["lanes"]))
        return {Lane(*lane): count for *lane, count in found}

    def state(self) -> JournalState:
        return JournalState(
            entries=self._entries,
            messages=self._messages,
            bytes=self._bytes,
            bytes_max=self._bytes_max,
            failed=self._failed,
            oldest_at=self._oldest_at,
        )

    async def save_catalogue(self, queues: Sequence[Queue]) -> None:
        text = msgspec.json.encode(queues)
        await self._writer.run(lambda db, _: rows(db, SQL["save_catalogue"], text))

    async def catalogue(self) -> list[Queue]:
        text = await self._writer.run(lambda db, _: value(db, SQL["catalogue"]))
        return _decode_queues(text) if text else []

    async def close(self) -> None:
        await self._writer.close()
        self._lock.release()


def _open(directory: Path) -> tuple[apsw.Connection, LockFile]:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"the journal's directory {directory} cannot be made: {error}") from None
    lock, path = _first_free(directory)
    try:
        db = _connect(path)
        try:
            _adopt(db, directory, path)
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
    return db, lock


def _first_free(directory: Path) -> tuple[LockFile, Path]:
    for number in range(JOURNALS_MAX):
        path = directory / f"journal-{number}.db"
        with contextlib.suppress(StoreUnavailable):
            return lock_beside(str(path)), path
    raise StoreUnavailable(f"no journal in {directory} can be had: each is held by another process, or not writable")


def _connect(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    try:
        db.set_busy_timeout(5_000)
        make_durable(db)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        db.execute(SQL["schema"])
    except BaseException:
        db.close()
        raise
    return db


def _adopt(db: apsw.Connection, directory: Path, own: Path) -> None:
    """Move what other files hold, of processes that are gone, into this one."""
    for path in sorted(directory.glob("journal-*.db")):
        if path == own:
            continue
        try:
            lock = lock_beside(str(path))
        except StoreUnavailable:
            continue  # its process lives
        try:
            left = _connect(path)
            try:
                _move(left, db, path)
            finally:
                left.close()
        finally:
            lock.release()


def _move(left: apsw.Connection, db: apsw.Connection, path: Path) -> None:
    """A crash between the two commits leaves entries in both files; replays are harmless."""
    found = list(rows(left, SQL["all"]))
    if not found:
        return
    with db:
        db.executemany(SQL["adopt"], found)
    rows(left, SQL["empty"])
    _log.info("adopted %d journal entries from %s", len(found), path)


def _sync(directory: Path) -> None:
    """A file that was made is durable only once its directory is."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _append(db: apsw.Connection, entries: Sequence[NewEntry], now: int) -> int:
    db.executemany(SQL["append"], [(*lane, messages, body, now) for lane, messages, body in entries])
    return now


def _read(db: apsw.Connection, kind: str, after: int, entries_max: int, bytes_max: int) -> list[Entry]:
    upto = size = 0
    for seq, length in rows(db, SQL["sizes"], kind, after, entries_max):
        size += length
        if upto and size > bytes_max:
            break
        upto = seq
    return [_entry(row) for row in rows(db, SQL["waiting"], kind, after, upto)]


def _entry(row: tuple[Any, ...]) -> Entry:
    seq, kind, tenant, name, partition, messages, body, created_at, error = row
    return Entry(seq, Lane(kind, tenant, name, partition), messages, body, created_at, error)


def _remove(db: apsw.Connection, entries: Sequence[Entry]) -> int | None:
    db.executemany(SQL["remove"], [(entry.seq,) for entry in entries])
    return _oldest(db)


def _fail(db: apsw.Connection, entry: Entry, error: str) -> int | None:
    rows(db, SQL["fail"], error, entry.seq)
    return _oldest(db)


def _oldest(db: apsw.Connection) -> int | None:
    found: int | None = value(db, SQL["oldest"])
    return found


def _retry(db: apsw.Connection, entry: Entry) -> bool:
    again = rows(db, SQL["retry"], entry.seq)
    rows(db, SQL["remove"], entry.seq)
    return bool(again)
