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
from fairlane.store.sqlite.error_mapping import translate

T = TypeVar("T")
Job = Callable[[apsw.Connection, int], T]
"""One verb: a function of the database and the time. It must be stateless, because it may run again."""

CLOCK_EVERY_US: Final = 1_000_000  # largest lag of the stored time
SAVE_CLOCK: Final = "insert or replace into meta (key, value) values ('clock', ?)"
_log = logging.getLogger(__name__)


_QueuedJob = tuple[Job[Any], asyncio.Future[Any]]
_Done = tuple[asyncio.Future[Any], Any, BaseException | None]
"""A finished job: its future, its result, and its error or None."""


class Writer:
    """The writer thread: owns the writing connection from the first job to the close."""

    def __init__(self, db: apsw.Connection, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._clock_saved_at = 0
        self._files = _files(db)
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_QueuedJob | None] = SimpleQueue()
        self._closing = False
        self._lost: str | None = None
        self.busy = False
        """True while a transaction is running."""
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._run, name="fairlane-writer", daemon=True).start()

    def run(self, work: Job[T]) -> asyncio.Future[T]:
        """Run `work` and return its durable result. Cancelling the caller does not undo it."""
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
        """Raise the error that every call gets from now on, if there is one."""
        if self._closing:
            raise ShuttingDown("the store is closed")
        if self._lost is not None:
            raise StoreUnavailable(self._lost)

    async def close(self) -> None:
        """Finish waiting jobs, then close the database. Idempotent."""
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
                self._call(_deliver, self._run_batch(cast(list[_QueuedJob], jobs)))
            del jobs  # frees the jobs before the next wait
            self.busy = False
        try:
            self._shut()
        finally:
            self._call(self._stop)

    def _run_batch(self, jobs: list[_QueuedJob]) -> list[_Done]:
        """Run all jobs in one transaction.

        If one fails, run each in its own, so that it fails alone. A failed commit fails every job.
        """
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
                if isinstance(error, StopIteration):  # no future can hold it
                    error = RuntimeError(f"a statement's work raised {error!r}")
                return [(jobs[0][1], None, translate(error) if isinstance(error, apsw.Error) else error)]
            return [done for job in jobs for done in self._run_batch([job])]
        try:
            db.execute("commit")
        except apsw.Error as error:
            return self._commit_failed(jobs, error)
        if _files(db) != self._files:
            # The commits are in an unlinked file, which the next start does not open.
            self._mark_lost(
                f"{db.filename} was moved, deleted or replaced; put it back if need be, and restart the broker"
            )
            return _all_failed(jobs, OutcomeUnknown(str(self._lost)))
        return done

    def _commit_failed(self, jobs: list[_QueuedJob], error: apsw.Error) -> list[_Done]:
        if isinstance(error, apsw.IOError):
            # The system may have dropped the pages that it could not write, and report the next fsync as successful.
            self._mark_lost(f"the disk failed during a commit, restart the broker once it works: {error}")
        self._roll_back()
        return _all_failed(jobs, error, commit=True)

    def _roll_back(self) -> None:
        self._clock_saved_at = 0
        try:
            if self._db.in_transaction:  # some errors roll back on their own
                self._db.execute("rollback")
        except apsw.Error as error:
            self._mark_lost(f"a transaction could not be rolled back: {error}")

    def _mark_lost(self, why: str) -> None:
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


def _all_failed(jobs: list[_QueuedJob], error: Exception, *, commit: bool = False) -> list[_Done]:
    """Give each caller its own exception: raising one object twice would mix the tracebacks."""
    return [(future, None, translate(error, commit=commit)) for _, future in jobs]


def _deliver(done: list[_Done]) -> None:
    for future, result, error in done:
        if future.done():  # its caller was cancelled
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
