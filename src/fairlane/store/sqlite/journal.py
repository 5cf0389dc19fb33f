"""The journal on an SQLite file of its own: one fsync for all that is to be written, like the store."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import apsw
import msgspec

from fairlane.errors import FairlaneError, JournalFull, StoreFull
from fairlane.model.queue import Queue
from fairlane.model.spec_version import SpecVersion
from fairlane.runtime.clock import SteadyClock
from fairlane.runtime.lock_file import LockFile
from fairlane.store.contract.journal import ROW_BYTES, Backlog, Backlogs, Entry, JournalState, NewEntry
from fairlane.store.sqlite.checkpoints import Checkpointer
from fairlane.store.sqlite.connection import CHECKPOINT_PAGES, is_safe
from fairlane.store.sqlite.faults import translate
from fairlane.store.sqlite.journal_files import SQL, Leftover, others, take
from fairlane.store.sqlite.rows import rows, value
from fairlane.store.sqlite.writer import Writer

RETRY_SECONDS: Final = 5.0
_LOG_PAGES_MAX: Final = 100_000  # 400 MB
_ROWS_MAX: Final = 500  # of one statement: SQLite takes 32,766 values
_log = logging.getLogger(__name__)
_decode_queues = msgspec.json.Decoder(list[Queue]).decode
_decode_specs = msgspec.json.Decoder(list[SpecVersion]).decode


class SqliteJournal:
    """Open for one process. `open` takes the first file of the directory that nobody holds, and what processes that
    are gone left in the others."""

    owned = True

    def __init__(self, db: apsw.Connection, lock: LockFile, path: Path, bytes_max: int) -> None:
        [measured] = rows(db, SQL["measure"])
        self._entries, self._messages, size, self._failed, self._oldest_at = measured
        self._bytes = size + (self._entries + self._failed) * ROW_BYTES
        """Of what is in the file or on its way there."""
        self._bytes_max = bytes_max
        self._checkpoints: Checkpointer | None = None
        if is_safe():
            self._checkpoints = Checkpointer(db, pages=CHECKPOINT_PAGES, pages_max=_LOG_PAGES_MAX)
        self._writer = Writer(db, SteadyClock())
        self._lock = lock
        self._path = path
        self.number = int(path.stem.rpartition("-")[2])

    @classmethod
    async def open(cls, directory: str, *, bytes_max: int) -> SqliteJournal:
        """StoreUnavailable if no file there can be had, StoreUnsafe if it would not be durable."""
        db, lock, path = await asyncio.to_thread(take, Path(directory))
        journal = cls(db, lock, path, bytes_max)
        await journal.adopt()
        return journal

    async def adopt(self) -> dict[Backlog, int]:
        adopted: Counter[Backlog] = Counter()
        for path in await asyncio.to_thread(others, self._path):
            try:
                left = await asyncio.to_thread(Leftover.open, path)
                if left is not None:
                    await self._take_in(left, path, adopted)
            except (FairlaneError, apsw.Error) as error:
                reason = translate(error) if isinstance(error, apsw.Error) else error
                _log.error("cannot adopt the journal file %s: %s", path, reason)
        return adopted

    async def _take_in(self, left: Leftover, path: Path, adopted: Counter[Backlog]) -> None:
        count = 0
        try:
            while found := await asyncio.to_thread(left.read):
                entries = [entry[1:] for entry in found]
                await self._writer.run(partial(_adopt, entries=entries))
                await asyncio.to_thread(left.drop, found)
                count += len(entries)
                self._count_in(entries, adopted)
        finally:
            await asyncio.to_thread(left.close)
        _log.info("adopted %d journal entries from %s", count, path)

    def _count_in(self, entries: Sequence[tuple[Any, ...]], adopted: Counter[Backlog]) -> None:
        for *backlog, messages, body, created_at, error, _ in entries:
            self._bytes += len(body) + ROW_BYTES
            if error is not None:
                self._failed += 1
                continue
            self._entries += 1
            self._messages += messages
            self._oldest_at = min(created_at, self._oldest_at or created_at)
            adopted[Backlog(*backlog)] += 1

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

    async def read(self, backlogs: Sequence[Backlog], *, entries_max: int, bytes_max: int) -> list[Entry]:
        return await self._writer.run(lambda db, _: _read(db, backlogs, entries_max, bytes_max))

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

    async def failed_entry(self, seq: int) -> Entry | None:
        found = await self._writer.run(lambda db, _: [_entry(row) for row in rows(db, SQL["failed_entry"], seq)])
        return found[0] if found else None

    async def find(self, id: UUID) -> Entry | None:
        found = await self._writer.run(lambda db, _: rows(db, SQL["find"], id.bytes))
        return _entry(found[0]) if found else None

    async def page(self, after: UUID, *, failed: bool | None, limit: int) -> list[Entry]:
        found = await self._writer.run(lambda db, _: rows(db, SQL["page"], after.bytes, failed, limit))
        return [_entry(row) for row in found]

    async def retry(self, entry: Entry) -> bool:
        if not await self._writer.run(lambda db, _: _retry(db, entry)):
            return False
        self._entries += 1
        self._messages += entry.messages
        self._failed -= 1
        self._oldest_at = min(entry.created_at, self._oldest_at or entry.created_at)
        return True

    def attach(self, backlogs: Backlogs, abandoned: Callable[[], set[Backlog]]) -> None:
        """Nobody else has entries in this file."""

    def released(self, backlogs: Sequence[Backlog]) -> None: ...

    def unsettled(self) -> set[Backlog]:
        return set()

    async def tell(self) -> None: ...

    def room(self) -> int:
        return int(self._bytes_max - self._bytes)

    async def backlogs(self) -> dict[Backlog, int]:
        found = await self._writer.run(lambda db, _: rows(db, SQL["backlogs"]))
        return {Backlog(*backlog): count for *backlog, count in found}

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

    async def save_specs(self, specs: Sequence[SpecVersion]) -> None:
        text = msgspec.json.encode(specs)
        await self._writer.run(lambda db, _: rows(db, SQL["save_specs"], text))

    async def specs(self) -> list[SpecVersion]:
        text = await self._writer.run(lambda db, _: value(db, SQL["specs"]))
        return _decode_specs(text) if text else []

    async def close(self) -> None:
        if self._checkpoints is not None:
            await asyncio.to_thread(self._checkpoints.close)
        await self._writer.close()
        self._lock.release()


def _adopt(db: apsw.Connection, now: int, *, entries: Sequence[tuple[Any, ...]]) -> None:
    db.executemany(SQL["adopt"], entries)


def _append(db: apsw.Connection, entries: Sequence[NewEntry], now: int) -> int:
    """Many rows with one statement: with one each, this thread would wait for its turn of the interpreter after each,
    while the loop is at work."""
    insert, row = SQL["append"].split("VALUES")
    for first in range(0, len(entries), _ROWS_MAX):
        some = entries[first : first + _ROWS_MAX]
        values = [
            value
            for backlog, messages, body, id in some
            for value in (*backlog, messages, body, None if id is None else id.bytes, now)
        ]
        rows(db, f"{insert}VALUES{','.join([row] * len(some))}", *values)
    return now


def _read(db: apsw.Connection, backlogs: Sequence[Backlog], entries_max: int, bytes_max: int) -> list[Entry]:
    each = max(1, entries_max // max(1, len(backlogs)))
    found: Counter[int] = Counter()
    sizes = []
    for backlog, seq, length in rows(db, SQL["sizes"], _json(backlogs), each):
        sizes.append((found[backlog], seq, length))
        found[backlog] += 1
    taken: list[int] = []
    size = 0
    for _, seq, length in sorted(sizes)[:entries_max]:  # each backlog's first, then each backlog's second
        size += length
        if taken and size > bytes_max:
            break
        taken.append(seq)
    return [_entry(row) for row in rows(db, SQL["read"], _json(taken))]


def _json(values: Sequence[Any]) -> str:
    return msgspec.json.encode(values).decode()


def _entry(row: tuple[Any, ...]) -> Entry:
    seq, kind, tenant, name, partition, messages, body, created_at, error, id = row
    backlog = Backlog(kind, tenant, name, partition)
    return Entry(seq, backlog, messages, body, created_at, error, None if id is None else UUID(bytes=id))


def _remove(db: apsw.Connection, entries: Sequence[Entry]) -> int | None:
    rows(db, SQL["remove"], _json([entry.seq for entry in entries]))
    return _oldest(db)


def _fail(db: apsw.Connection, entry: Entry, error: str) -> int | None:
    rows(db, SQL["fail"], error, entry.seq)
    return _oldest(db)


def _oldest(db: apsw.Connection) -> int | None:
    found: int | None = value(db, SQL["oldest"])
    return found


def _retry(db: apsw.Connection, entry: Entry) -> bool:
    again = rows(db, SQL["retry"], entry.seq)
    rows(db, SQL["remove"], f"[{entry.seq}]")
    return bool(again)
