"""Checkpoints: copy the WAL of a database back into it while its writer continues.

A checkpoint on the writer's connection would block all commits, until ten thousand pages are written and synced.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from queue import Empty, SimpleQueue
from typing import Final

import apsw

AGAIN_SECONDS: Final = 5.0
"""Pause after a checkpoint that the writer outran. The log restarts only when all of it is copied."""
_log = logging.getLogger(__name__)


class Checkpointer:
    """The checkpointer, with its own connection and thread, from the first commit of `db` to the close.

    It copies the log when it has `pages`. At `pages_max` the writer does it itself, so that the log is bounded.
    """

    def __init__(self, db: apsw.Connection, *, pages: int, pages_max: int) -> None:
        self._db = apsw.Connection(db.filename)
        self._db.execute("select 1 from sqlite_schema").fetchall()  # it notices the log only after a read
        self._pages = pages
        self._pages_max = pages_max
        self._wanted: SimpleQueue[bool] = SimpleQueue()
        self._at_work = False
        db.set_wal_hook(self._committed)
        self._thread = threading.Thread(target=self._run, name="fairlane-checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for the running checkpoint, then close."""
        self._wanted.put(False)
        self._thread.join()

    def _committed(self, db: apsw.Connection, name: str, pages: int) -> int:
        """Note a commit. SQLite calls this on the writer's thread."""
        if pages >= self._pages_max:
            # An exception here would look like a failed commit.
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
        """Run a checkpoint. Returns True if all of the log was copied."""
        try:
            pages, done = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            _log.warning("checkpoint of %s failed, retrying: %s", self._db.filename, error)
            return False
        return pages == done
