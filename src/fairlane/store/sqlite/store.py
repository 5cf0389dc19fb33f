"""The store on one SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fairlane.runtime.clock import Clock
from fairlane.store.codec import Codec
from fairlane.store.contract.store import Store
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.messages import Messages
from fairlane.store.sqlite.operations import Operations
from fairlane.store.sqlite.query import QueryRunner
from fairlane.store.sqlite.rows import rows
from fairlane.store.sqlite.scheduled import ScheduledMessages
from fairlane.store.sqlite.writer import SAVE_CLOCK
from fairlane.store.tail_cache import TailCache


class SqliteStore(Store):
    """The store on a file that only one process may open. A second one gets StoreUnavailable."""

    kind = "sqlite"
    sole_broker = True

    def __init__(self, database: Database, tail_cache: TailCache) -> None:
        self._database = database
        self.tail_cache = tail_cache
        self.id_time = lambda: database.clock() // 1000
        self.messages = Messages(database, tail_cache)
        runner = QueryRunner(database)
        super().__init__(runner, self.messages)
        self._purging = asyncio.create_task(self._resume_cleanup(), name="fairlane-purge")
        self.operations = Operations(runner, database)
        self.codec = database.codec = Codec(self.data_keys, self.queues, self.id_time)
        self.scheduled = ScheduledMessages(runner, database)

    @classmethod
    async def open(cls, path: str, *, clock: Clock | None = None, tail_cache: TailCache | None = None) -> SqliteStore:
        """Open the store. `path` is a file, created if missing, or `:memory:`.

        Raises StoreUnavailable if it cannot be opened, StoreUnsafe if commits would not be durable or the schema is
        unknown.
        """
        return cls(await Database.open(path, clock=clock), tail_cache or TailCache())

    async def _resume_cleanup(self) -> None:
        """Finish deletions that an earlier process began."""
        await self.queues.purge()
        await self.browse.trim()

    async def now(self) -> int:
        return self._database.clock()

    async def check_health(self) -> None:
        """Commit a write, after the pending jobs of the single writer."""
        await self._database.write(lambda db, now: rows(db, SAVE_CLOCK, now))

    def flushes(self) -> int:
        """Return 1: a second flush would only compete with the writer thread for the GIL."""
        return 1

    def connections(self) -> tuple[int, int]:
        return self._database.connections()

    async def report(self) -> dict[str, Any]:
        return {"kind": self.kind, **await self._database.report()}

    def listen(self, wake: Callable[[int], None]) -> None:
        """Do nothing: no other broker can have the file open."""

    def hint(self, queue_id: int) -> None:
        """No-op: SQLite has a single broker."""

    async def close(self) -> None:
        self._purging.cancel()
        await asyncio.wait([self._purging])
        await self._database.close()
