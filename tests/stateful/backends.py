"""Stores for the state machines: an empty one for each example, at little cost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from fairlane.broker.broker import Broker
from fairlane.broker.engine import build_engine
from fairlane.store.opening import open_store
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.store import PostgresStore
from fairlane.store.sqlite.store import SqliteStore
from tests.clock import ManualClock
from tests.until import until

T = TypeVar("T")
U = TypeVar("U")
WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
STORES = (PostgresStore, SqliteStore)
"""Imported before a loop runs, because importing it would block a busy loop for too long."""

_numbers = itertools.count(1)


class _HeldDatabase(Database):
    """The same database, except that the writes of a pop are committed when `leave` is set."""

    def __init__(self, database: Database) -> None:
        super().__init__(database._pool, database._clock)
        self._at_hand = database._at_hand
        self.arrived = asyncio.Event()
        self.leave = asyncio.Event()

    async def write(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        async def work(connection: asyncpg.Connection[Any]) -> list[asyncpg.Record]:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *arguments)
            self.arrived.set()
            await self.leave.wait()
            return rows

        return await self.transact(work)


class BrokerLoop:
    """A broker that opens when first used, with its own event loop and clock."""

    def __init__(self, url: str, **options: Any) -> None:
        self.clock = ManualClock(0)
        self._url = url
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._broker: Broker | None = None

    @property
    def broker(self) -> Broker:
        if self._broker is None:
            self._broker = self.run(self._open())
        return self._broker

    async def _open(self) -> Broker:
        return Broker(build_engine(await open_store(self._url, clock=self.clock, **self._options)))

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(call)

    def meet(self, pop: Coroutine[Any, Any, T], act: Coroutine[Any, Any, U]) -> tuple[T, U]:
        """Run two calls concurrently.

        On PostgreSQL the pop has done its work and commits when the other call waits for it or is done. On SQLite there
        is one writer.
        """
        return self.run(self._meet(pop, act))

    async def _meet(self, pop: Coroutine[Any, Any, T], act: Coroutine[Any, Any, U]) -> tuple[T, U]:
        store = self.broker._engine.store
        if not isinstance(store, PostgresStore):
            popped, acted = await asyncio.gather(pop, act)
            return popped, acted
        messages: Any = store.messages
        popper = messages._popper
        database = popper._database
        held = popper._database = _HeldDatabase(database)
        try:
            popping, arriving = asyncio.create_task(pop), asyncio.create_task(held.arrived.wait())
            await asyncio.wait([popping, arriving], return_when=asyncio.FIRST_COMPLETED)
            arriving.cancel()
            acting = asyncio.create_task(act)

            async def through_or_waiting() -> bool:
                return acting.done() or bool((await database.read(WAITING))[0][0])

            await until(through_or_waiting)
            held.leave.set()
            return await asyncio.gather(popping, acting)
        finally:
            popper._database = database

    def reopen(self) -> None:
        self.run(self.broker.close())
        self._broker = self.run(self._open())

    def close(self) -> None:
        if self._broker is not None:
            self.run(self._broker.close())
        self._loop.close()


class Backend:
    """The store of one example. Later examples use its database again."""

    def __init__(self, broker_loop: BrokerLoop) -> None:
        self.broker_loop = broker_loop

    def leave(self) -> None:
        for queue in self.broker_loop.run(self.broker_loop.broker.queues.all()):
            self.broker_loop.run(self.broker_loop.broker.queues.delete(queue.name))


class SqliteBackend(Backend):
    """A file of its own."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / f"{next(_numbers)}.db"
        super().__init__(BrokerLoop(f"sqlite:///{self._file}"))

    def leave(self) -> None:
        self.broker_loop.close()
        for file in self._file.parent.glob(f"{self._file.name}*"):
            file.unlink()
