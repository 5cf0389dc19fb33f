"""Checkpoints: writing the WAL of a database back into it while its writer goes on.

A checkpoint on the writer's own connection holds up everybody who waits for a commit, for as long as it takes to write
and sync some ten thousand pages."""

from __future__ import annotations

import contextlib
import logging
import threading
from queue import Empty, SimpleQueue
from typing import Final

import apsw

AGAIN_SECONDS: Final = 5.0
"""After a checkpoint that the writer outran: the log begins anew only when all of it is written back."""
_log = logging.getLogger(__name__)


class Checkpointer:
    """The checkpointer: owns a connection and a thread, from the first commit of `db` to the close. From `pages` in the
    log on it is written back; from `pages_max` on the writer does that itself, so that the log is bounded."""

    def __init__(self, db: apsw.Connection, *, pages: int, pages_max: int) -> None:
        self._db = apsw.Connection(db.filename)
        self._db.execute("select 1 from sqlite_schema").fetchall()  # it knows of the log only once it has read
        self._pages = pages
        self._pages_max = pages_max
        self._wanted: SimpleQueue[bool] = SimpleQueue()
        self._at_work = False
        db.set_wal_hook(self._committed)
        self._thread = threading.Thread(target=self._run, name="fairlane-checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Blocks until the checkpoint under way is done."""
        self._wanted.put(False)
        self._thread.join()

    def _committed(self, db: apsw.Connection, name: str, pages: int) -> int:
        """Called by SQLite on the writer's thread, after each commit."""
        if pages >= self._pages_max:
            # An exception here would look like one of the commit, which is done.
            with contextlib.suppress(apsw.Error):
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        elif pages >= self._pages and not self._at_work:
            self._at_work = True
            self._wanted.put(True)
        return apsw.SQLITE_OK

    def _run(self) -> None:
        while self._wanted.get():
            while not self._checkpoint():
                try:
                    self._wanted.get(timeout=AGAIN_SECONDS)
                except Empty:
                    continue
                self._db.close()
                return
            self._at_work = False
        self._db.close()

    def _checkpoint(self) -> bool:
        """Whether all of the log is written back."""
        try:
            pages, done = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            _log.warning("checkpoint of %s failed, retrying: %s", self._db.filename, error)
            return False
        return pages == done
