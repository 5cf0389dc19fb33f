"""The store on one SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from fairlane.runtime.clock import Clock
from fairlane.store import base
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.dead_letters import DeadLetters
from fairlane.store.sqlite.groups import Groups
from fairlane.store.sqlite.messages import Messages
from fairlane.store.sqlite.queues import Queues


class SqliteStore:
    """Open for one process at a time. A second opener of the same file gets StoreUnavailable."""

    queues: base.Queues
    messages: base.Messages
    groups: base.Groups
    dead_letters: base.DeadLetters

    def __init__(self, database: Database) -> None:
        self._database = database
        queues = Queues(database)
        self._purging = asyncio.create_task(queues.purge(), name="fairlane-purge")
        self.queues = queues
        self.messages = Messages(database)
        self.groups = Groups(database)
        self.dead_letters = DeadLetters(database)

    @classmethod
    async def open(cls, path: str, *, clock: Clock | None = None) -> SqliteStore:
        """`path` is a file, made if missing, or `:memory:`. StoreUnavailable if it cannot be had, StoreUnsafe
        if commits would not be durable or the schema is not one this code knows."""
        return cls(await Database.open(path, clock=clock))

    async def now(self) -> int:
        return self._database.clock()

    def id_time(self) -> int:
        return self._database.clock() // 1000

    def flushes(self) -> int:
        """Two: the next is prepared while the writer commits the one before."""
        return 2

    def listen(self, wake: Callable[[int], None]) -> None:
        """No other broker can have the file open, so there is nobody to hear from."""

    def hint(self, queue_id: int) -> None:
        """Nor to tell."""

    async def close(self) -> None:
        self._purging.cancel()
        await asyncio.wait([self._purging])
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
