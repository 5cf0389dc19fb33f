"""The journal files of a directory: which one a broker uses, and what others left.

All processes of a broker use one file, known by their store; a broker of another store uses another. So brokers of
different stores may lie in one directory. A file that nobody uses is anybody's: the URL of a store may change."""

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
"""For which a process waits while another of the directory chooses its file."""
BUSY_SECONDS: Final = 5.0
"""For which a writer waits for another process's commit."""
_STEP: Final = 100  # entries that are moved at once: each may be as large as a request


class Use:
    """A file of the directory in use: shared by the processes of one store, or by one alone that adopts it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def alone(self) -> bool:
        """Whether nobody else uses it; then nobody can."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        os.ftruncate(self._fd, 0)
        return True

    def share(self, store: bytes) -> None:
        """Let processes of this store use it as well."""
        os.pwrite(self._fd, store, 0)
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def joins(self, store: bytes) -> bool:
        """Whether those who use it are of this store; then this process is one of them."""
        if os.pread(self._fd, len(store) + 1, 0) != store:
            return False
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return os.pread(self._fd, len(store) + 1, 0) == store
        return False

    def end(self) -> None:
        os.close(self._fd)


def choose(directory: Path, store: str) -> Use:
    """The file that processes of this store use already, or the first that nobody uses."""
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
        if use.alone():
            if free is None:
                free = use
                continue
        elif use.joins(store):
            if free is not None:
                free.end()
            return use
        use.end()
    if free is None:
        raise StoreUnavailable(f"no journal in {directory} can be had: brokers of other stores use them")
    free.share(store)
    return free


def connect(path: Path) -> apsw.Connection:
    """The writing connection of a process. Others may write and check point the same file."""
    with contextlib.suppress(FileExistsError):
        # Never opened and closed by hand once it is there: that would end the locks SQLite has on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = apsw.Connection(str(path))
    try:
        db.set_busy_handler(_wait)
        make_durable(db)
        with contextlib.suppress(apsw.BusyError):
            # What a process whose disk failed left in the log may be in the page cache only: write it anew.
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
    """SQLite itself waits longer each time, up to a tenth of a second: far longer than a commit takes."""
    time.sleep(0.001)
    return tries < BUSY_SECONDS * 1000


def _sync(directory: Path) -> None:
    """A file that was made is durable only once its directory is."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def member_lock(directory: Path, number: int) -> LockFile:
    """The lock of a process of the directory, which it has as long as it lives."""
    return LockFile(str(directory / f"process-{number}.lock"))


def join(directory: Path) -> tuple[int, LockFile]:
    """A number that no other process of the directory has."""
    for number in count():
        with contextlib.suppress(BlockingIOError):
            return number, member_lock(directory, number)
    raise AssertionError


class Leftover:
    """A file that nobody uses, with entries in it. An entry is dropped here only when it is durable elsewhere: a
    crash in between leaves it in both files, and a replay is harmless."""

    def __init__(self, use: Use) -> None:
        self._use = use
        self._db = connect(use.path)

    @classmethod
    def open(cls, path: Path) -> Leftover | None:
        """None if somebody uses it."""
        use = Use(path)
        try:
            if use.alone():
                return cls(use)
        except BaseException:
            use.end()
            raise
        use.end()
        return None

    def read(self) -> list[tuple[Any, ...]]:
        """The next entries, each after its sequence number."""
        return rows(self._db, SQL["next"], _STEP)

    def drop(self, entries: list[tuple[Any, ...]]) -> None:
        rows(self._db, SQL["drop"], entries[-1][0])

    def close(self) -> None:
        try:
            self._db.close()
        finally:
            self._use.end()
