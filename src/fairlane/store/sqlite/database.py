"""The open database: a writer, readers, and their common clock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

import apsw

from fairlane.errors import ShuttingDown
from fairlane.runtime.clock import Clock, steady_clock
from fairlane.runtime.process import LockFile
from fairlane.runtime.threads import call_in
from fairlane.store.sqlite import rows
from fairlane.store.sqlite.connection import MEMORY, lock, open_reader, open_writer
from fairlane.store.sqlite.error_mapping import translate
from fairlane.store.sqlite.writer import Job, Writer

if TYPE_CHECKING:
    from fairlane.store.codec import Codec

T = TypeVar("T")
READERS: Final = 2


class Database:
    def __init__(self, writer: Writer, readers: Readers | None, lock: LockFile | None, clock: Clock) -> None:
        self._writer = writer
        self.write = writer.run
        self._readers = readers
        self._lock = lock
        self.clock = clock
        self._closed: asyncio.Task[None] | None = None
        self.codec: Codec
        """Codec of the store, used by its families."""

    @classmethod
    async def open(cls, path: str, *, clock: Clock | None) -> Database:
        db, readers, lock, last_at = await asyncio.to_thread(_open, path)
        clock = clock or steady_clock(least=last_at)
        return cls(Writer(db, clock), readers, lock, clock)

    async def read(self, work: Job[T]) -> T:
        """Run `work` on a snapshot with every commit reported so far."""
        self._writer.check()
        if self._readers is None:
            return await self._writer.run(work)
        return await self._readers.run(work, self.clock)

    def connections(self) -> tuple[int, int]:
        """Return the number of connections, and how many are in use."""
        if self._readers is None:
            return 1, int(self._writer.busy)
        return 1 + READERS, int(self._writer.busy) + self._readers.busy

    async def report(self) -> dict[str, Any]:
        return await self.read(lambda db, now: _report(db))

    async def close(self) -> None:
        if self._closed is None:
            self._closed = asyncio.create_task(self._close())
        await asyncio.shield(self._closed)

    async def _close(self) -> None:
        # Close the readers first: the last checkpoint cannot pass a snapshot that is still in use.
        if self._readers is not None:
            await self._readers.close()
        await self._writer.close()
        if self._lock is not None:
            self._lock.release()


class Readers:
    """A few read-only connections, each used by one thread at a time."""

    def __init__(self, path: str) -> None:
        self._free: SimpleQueue[apsw.Connection] = SimpleQueue()
        self._closing = False
        for _ in range(READERS):
            self._free.put(open_reader(path))
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="fairlane-reader")

    @property
    def busy(self) -> int:
        return READERS - self._free.qsize()

    async def run(self, work: Job[T], clock: Clock) -> T:
        if self._closing:
            raise ShuttingDown("the store is closed")
        return await call_in(self._threads, self._read, work, clock)

    def _read(self, work: Job[T], clock: Clock) -> T:
        db = self._free.get()
        try:
            db.execute("begin")
            try:
                return work(db, clock())
            finally:
                if db.in_transaction:
                    db.execute("rollback")
        except apsw.Error as error:
            raise translate(error) from error
        finally:
            self._free.put(db)

    async def close(self) -> None:
        self._closing = True
        await asyncio.to_thread(self._threads.shutdown)
        while not self._free.empty():
            self._free.get().close()


def _open(path: str) -> tuple[apsw.Connection, Readers | None, LockFile | None, int]:
    """Return the connections, the lock, and the last stored time."""
    with contextlib.ExitStack() as undo:
        locked = readers = None
        if path != MEMORY:
            path = os.path.realpath(path)
            locked = lock(path)
            undo.callback(locked.release)
        try:
            db = open_writer(path)
            undo.callback(db.close)
            last_at = rows.value(db, "select value from meta where key = 'clock'") or 0
            if locked is not None:
                readers = Readers(path)
        except apsw.Error as error:
            raise translate(error) from error
        undo.pop_all()
        return db, readers, locked, last_at


def _report(db: apsw.Connection) -> dict[str, Any]:
    page_size, pages, free = (int(db.pragma(name)) for name in ("page_size", "page_count", "freelist_count"))
    wal = f"{db.filename}-wal"
    disk = shutil.disk_usage(os.path.dirname(db.filename) or ".")
    return {
        "version": apsw.sqlite_lib_version(),
        "bytes": page_size * pages,
        "freeBytes": page_size * free,
        "diskBytes": disk.total,
        "diskFreeBytes": disk.free,
        "logBytes": os.path.getsize(wal) if os.path.exists(wal) else 0,
        "journalMode": db.pragma("journal_mode"),
    }
