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
from fairlane.store.sqlite.port import Port
from fairlane.store.sqlite.rows import rows
from fairlane.store.sqlite.scheduled import ScheduledMessages
from fairlane.store.sqlite.writer import SAVE_CLOCK


class SqliteStore(Store):
    """Open for one process at a time. A second opener of the same file gets StoreUnavailable."""

    kind = "sqlite"
    alone = True

    def __init__(self, database: Database) -> None:
        self._database = database
        self.id_time = lambda: database.clock() // 1000
        self.messages = Messages(database)
        port = Port(database)
        super().__init__(port, self.messages)
        self._purging = asyncio.create_task(self._tidy(), name="fairlane-purge")
        self.operations = Operations(port, database)
        self.codec = database.codec = Codec(self.keys, self.queues, self.id_time)
        self.scheduled = ScheduledMessages(port, database)

    @classmethod
    async def open(cls, path: str, *, clock: Clock | None = None) -> SqliteStore:
        """`path` is a file, made if missing, or `:memory:`. StoreUnavailable if it cannot be had, StoreUnsafe
        if commits would not be durable or the schema is not one this code knows."""
        return cls(await Database.open(path, clock=clock))

    async def _tidy(self) -> None:
        """Remove what an earlier process was removing."""
        await self.queues.purge()
        await self.browse.trim()

    async def now(self) -> int:
        return self._database.clock()

    async def answer(self) -> None:
        """There is one writer, so that this comes after what it has in hand."""
        await self._database.write(lambda db, now: rows(db, SAVE_CLOCK, now))

    def flushes(self) -> int:
        """One: the writer and whoever prepares a second flush would only wait for each other's turn of the
        interpreter."""
        return 1

    def connections(self) -> tuple[int, int]:
        return self._database.connections()

    async def report(self) -> dict[str, Any]:
        return {"kind": self.kind, **await self._database.report()}

    def listen(self, wake: Callable[[int], None]) -> None:
        """No other broker can have the file open, so there is nobody to hear from."""

    def hint(self, queue_id: int) -> None:
        """Nor to tell."""

    async def close(self) -> None:
        self._purging.cancel()
        await asyncio.wait([self._purging])
        await self._database.close()
