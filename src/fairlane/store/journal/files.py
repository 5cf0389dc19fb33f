"""The journal files of a directory: the one that a broker uses, and leftovers of others.

All processes of a broker use one file, identified by their store. Brokers of different stores use different files, so
they may share a directory. Any broker may adopt an unused file, because the URL of a store may change.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, Final

import apsw

from fairlane.errors import StoreUnavailable
from fairlane.runtime.process import LockFile
from fairlane.store.sqlite.connection import make_durable
from fairlane.store.sqlite.rows import rows
from fairlane.store.statements import load

SQL: Final = load("fairlane.store.journal", "journal.sql")
CHOOSE_SECONDS: Final = 10.0
"""Timeout while another process of the directory chooses its file."""
BUSY_SECONDS: Final = 5.0
"""Timeout of a writer for the commit of another process."""
_STEP: Final = 100  # entries moved at once; each may be as large as a request


class Use:
    """A file of the directory in use: shared by the processes of one store, or exclusive to adopt it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_exclusive(self) -> bool:
        """Lock the file exclusively. Returns False if another process uses it."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        os.ftruncate(self._fd, 0)
        return True

    def share(self, store: bytes) -> None:
        """Share the file with other processes of this store."""
        os.pwrite(self._fd, store, 0)
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def try_join(self, store: bytes) -> bool:
        """Share the file with its users if they belong to this store. Returns False otherwise."""
        if os.pread(self._fd, len(store) + 1, 0) != store:
            return False
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return os.pread(self._fd, len(store) + 1, 0) == store
        return False

    def end(self) -> None:
        os.close(self._fd)


def choose(directory: Path, store: str) -> Use:
    """Return the file that processes of this store use, or the first unused one."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _one_by_one(directory):
            return _choose(directory, sha256(store.encode()).digest())
    except OSError as error:
        raise StoreUnavailable(f"the journal's directory {directory} cannot be used: {error}") from None


@contextlib.contextmanager
def _one_by_one(directory: Path) -> Iterator[None]:
    give_up_at = time.monotonic() + CHOOSE_SECONDS
    lock: LockFile | None = None
    while lock is None:
        try:
            lock = LockFile(str(directory / "choose.lock"))
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                raise StoreUnavailable(f"another process keeps the lock on {directory}/choose.lock") from None
            time.sleep(0.01)
    try:
        yield
    finally:
        lock.release()


def _choose(directory: Path, store: bytes) -> Use:
    there = sorted(int(path.stem.rpartition("-")[2]) for path in directory.glob("journal-*.db"))
    anew = next(number for number in count() if number not in there)
    free: Use | None = None
    for number in (*there, anew):
        use = Use(directory / f"journal-{number}.db")
        if use.try_exclusive():
            if free is None:
                free = use
                continue
        elif use.try_join(store):
            if free is not None:
                free.end()
            return use
        use.end()
    if free is None:
        raise StoreUnavailable(f"no journal in {directory} can be had: brokers of other stores use them")
    free.share(store)
    return free


def connect(path: Path) -> apsw.Connection:
    """Open the writing connection of a process. Other processes may write and checkpoint the same file."""
    with contextlib.suppress(FileExistsError):
        # Never opened and closed directly once it exists: closing would drop the locks that SQLite holds on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = apsw.Connection(str(path))
    try:
        db.set_busy_handler(_wait)
        make_durable(db)
        with contextlib.suppress(apsw.BusyError):
            # A process whose disk failed may have left pages of the log only in the page cache, so write them again.
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        db.execute("begin immediate")
        db.execute(SQL["schema"])
        db.execute("commit")
        _sync(path.parent)
    except BaseException:
        db.close()
        raise
    return db


def _wait(tries: int) -> bool:
    """Wait before the next attempt. SQLite's own waits grow up to a tenth of a second, far longer than a commit."""
    time.sleep(0.001)
    return tries < BUSY_SECONDS * 1000


def _sync(directory: Path) -> None:
    """Sync a directory, because a new file is durable only when its directory is."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def member_lock(directory: Path, number: int) -> LockFile:
    """Return the lock that a process of the directory holds while it lives."""
    return LockFile(str(directory / f"process-{number}.lock"))


def join(directory: Path) -> tuple[int, LockFile]:
    """Return a number that no other process of the directory has, with its lock."""
    for number in count():
        with contextlib.suppress(BlockingIOError):
            return number, member_lock(directory, number)
    raise AssertionError


class Leftover:
    """An unused file with entries.

    An entry is removed here only when it is durable elsewhere. A crash in between leaves it in both files, and
    replaying it is harmless.
    """

    def __init__(self, use: Use) -> None:
        self._use = use
        self._db = connect(use.path)

    @classmethod
    def open(cls, path: Path) -> Leftover | None:
        """Open a leftover file. None if it is in use."""
        use = Use(path)
        try:
            if use.try_exclusive():
                return cls(use)
        except BaseException:
            use.end()
            raise
        use.end()
        return None

    def read(self) -> list[tuple[Any, ...]]:
        """Return the next entries, each after its sequence number."""
        return rows(self._db, SQL["next"], _STEP)

    def drop(self, entries: list[tuple[Any, ...]]) -> None:
        rows(self._db, SQL["drop"], entries[-1][0])

    def close(self) -> None:
        try:
            self._db.close()
        finally:
            self._use.end()
