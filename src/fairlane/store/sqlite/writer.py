"""The writer thread: each turn it takes everything that waits and commits it with one fsync."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeVar, cast

import apsw

from fairlane.errors import FairlaneError, OutcomeUnknown, ShuttingDown, StoreUnavailable
from fairlane.runtime.clock import Clock
from fairlane.store.sqlite.faults import translate

T = TypeVar("T")
Work = Callable[[apsw.Connection, int], T]
"""One verb: a function of the database and the time. Kept free of state, for it may run again."""

CLOCK_EVERY_US: Final = 1_000_000  # how far the stored time may lag behind the one handed out
SAVE_CLOCK: Final = "insert or replace into meta (key, value) values ('clock', ?)"
_log = logging.getLogger(__name__)


_Job = tuple[Work[Any], asyncio.Future[Any]]
_Done = tuple[asyncio.Future[Any], Any, BaseException | None]
"""Whose it is, its result, its error."""


class Writer:
    """The writer thread: owns the writing connection from the first job to the close."""

    def __init__(self, db: apsw.Connection, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._clock_saved_at = 0
        self._files = _files(db)
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closing = False
        self._lost: str | None = None
        self.busy = False
        """Whether a turn is under way."""
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._run, name="fairlane-writer", daemon=True).start()

    def run(self, work: Work[T]) -> asyncio.Future[T]:
        """The result of `work`, durable. Cancelling the caller does not undo it."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self._closing or self._lost is not None:
            try:
                self.check()
            except FairlaneError as error:
                future.set_exception(error)
        else:
            self._jobs.put((work, future))
        return future

    def check(self) -> None:
        """Raise what every call gets from now on, if anything."""
        if self._closing:
            raise ShuttingDown("the store is closed")
        if self._lost is not None:
            raise StoreUnavailable(self._lost)

    async def close(self) -> None:
        """Finish what waits, then close the database. Idempotent."""
        if not self._closing:
            self._closing = True
            self._jobs.put(None)
        await asyncio.shield(self._stopped)

    def _run(self) -> None:
        stop = False
        while not stop:
            jobs = [self._jobs.get()]
            self.busy = True
            jobs += [self._jobs.get() for _ in range(self._jobs.qsize())]
            if stop := jobs[-1] is None:
                jobs.pop()
            if jobs:
                self._call(_deliver, self._turn(cast(list[_Job], jobs)))
            del jobs  # nothing of theirs is held until the next comes
            self.busy = False
        try:
            self._shut()
        finally:
            self._call(self._stop)

    def _turn(self, jobs: list[_Job]) -> list[_Done]:
        """All jobs in one transaction and at one time; when one of them fails, each in its own, so that it fails alone.
        A failed commit is every job's own failure."""
        db = self._db
        if self._lost is not None:
            return _all_failed(jobs, StoreUnavailable(self._lost))
        try:
            db.execute("begin immediate")
        except apsw.Error as error:
            return _all_failed(jobs, error)
        try:
            now, before = self._clock(), db.total_changes()
            done: list[_Done] = [(future, work(db, now), None) for work, future in jobs]
            if now - self._clock_saved_at >= CLOCK_EVERY_US and db.total_changes() != before:
                db.execute(SAVE_CLOCK, (now,))
                self._clock_saved_at = now
        except BaseException as error:
            self._roll_back()
            if not isinstance(error, Exception):
                raise
            if len(jobs) == 1:
                if isinstance(error, StopIteration):  # which no future can hold
                    error = RuntimeError(f"a statement's work raised {error!r}")
                return [(jobs[0][1], None, translate(error) if isinstance(error, apsw.Error) else error)]
            return [done for job in jobs for done in self._turn([job])]
        try:
            db.execute("commit")
        except apsw.Error as error:
            return self._commit_failed(jobs, error)
        if _files(db) != self._files:
            # What was committed is in a file without a name, which the next start does not open.
            self._lose(f"{db.filename} was moved, deleted or replaced; put it back if need be, and restart the broker")
            return _all_failed(jobs, OutcomeUnknown(str(self._lost)))
        return done

    def _commit_failed(self, jobs: list[_Job], error: apsw.Error) -> list[_Done]:
        if isinstance(error, apsw.IOError):
            # The system may have dropped the pages it could not write and report the next fsync as good.
            self._lose(f"the disk failed during a commit, restart the broker once it works: {error}")
        self._roll_back()
        return _all_failed(jobs, error, commit=True)

    def _roll_back(self) -> None:
        self._clock_saved_at = 0
        try:
            if self._db.in_transaction:  # some errors roll back by themselves
                self._db.execute("rollback")
        except apsw.Error as error:
            self._lose(f"a transaction could not be rolled back: {error}")

    def _lose(self, why: str) -> None:
        _log.critical("the store stops: %s", why)
        self._lost = why

    def _call(self, function: Callable[..., None], *values: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *values)
        except RuntimeError:
            _log.warning("the event loop ended before its store was closed")

    def _shut(self) -> None:
        try:
            if self._lost is None:
                self._db.execute(SAVE_CLOCK, (self._clock(),))
                self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            else:
                self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        except apsw.Error as error:
            # Nothing is lost: the next start finds all commits in the log.
            _log.warning("checkpoint at close failed: %s", error)
        self._db.close()

    def _stop(self) -> None:
        if not self._stopped.done():
            self._stopped.set_result(None)


def _files(db: apsw.Connection) -> list[tuple[int, int] | None]:
    """Return device and inode of what the names of the database and its log lead to. Empty for one in memory."""
    found: list[tuple[int, int] | None] = []
    for path in (db.filename, db.filename_wal) if db.filename else ():
        try:
            state = os.stat(path)
            found.append((state.st_dev, state.st_ino))
        except OSError:
            found.append(None)
    return found


def _all_failed(jobs: list[_Job], error: Exception, *, commit: bool = False) -> list[_Done]:
    """Each caller gets an exception of its own: one object raised twice would mix the tracebacks."""
    return [(future, None, translate(error, commit=commit)) for _, future in jobs]


def _deliver(done: list[_Done]) -> None:
    for future, result, error in done:
        if future.done():  # its caller was cancelled
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
