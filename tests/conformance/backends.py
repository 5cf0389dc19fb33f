"""A store under test: how to open it, read its rows, and block transactions inside it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, cast

import apsw
import asyncpg
import pytest

from fairlane.model.ids import PartitionId, cell_of
from fairlane.runtime.clock import Clock
from fairlane.store.cells.cluster import add_cell
from fairlane.store.cells.store import CellsStore
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import PopCall, PopResult
from fairlane.store.families import groups
from fairlane.store.postgres.connection import Database, prepare
from fairlane.store.postgres.driver import in_schema
from fairlane.store.postgres.messages import SQL as POSTGRES_MESSAGES
from fairlane.store.postgres.pop import PopRunner
from fairlane.store.postgres.store import PostgresStore
from fairlane.store.sqlite.store import SqliteStore
from fairlane.store.tail_cache import TailCache
from tests.conformance.configurations import Configuration
from tests.postgres import PostgresServer
from tests.until import until

ARRIVAL_SECONDS_MAX = 10.0
TESTS_EACH = 50
"""Number of tests that use one database."""


class Arrived(Protocol):
    async def __call__(self, *tasks: asyncio.Task[Any]) -> None:
        """Return when each of these tasks is done or waits inside the store."""


class Backend(Protocol):
    url: str
    many_brokers: bool
    """Several brokers may open it at once."""
    options: dict[str, Any]
    """Further arguments of `Broker.open` besides the URL."""

    async def make(self) -> None: ...

    async def open(self, clock: Clock | None) -> Store: ...

    async def sql(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement in PostgreSQL's syntax on a separate connection."""

    def hold(self, store: Store, row: Row) -> AbstractAsyncContextManager[Arrived]:
        """Block transactions that lock this row. On SQLite, which has one writer, blocks all writes."""

    def stop_pop(
        self, store: Store, call: PopCall, clock: Clock
    ) -> AbstractAsyncContextManager[tuple[PopResult, Arrived]]:
        """Run a pop that has done its work and commits at the end of the block.

        On SQLite nothing can come in between, so it commits at once.
        """

    def seed_in_steps_of(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        """Create the cursors of a new group in steps of this size, so that a small test takes several steps."""

    async def cut_connections(self) -> None:
        """Close every connection of a store, whatever it is doing. Does nothing for SQLite."""

    def deadlocks(self) -> list[str]:
        """Return the database's reports of the deadlocks that it resolved so far."""


class Row:
    """A row of the store, as the statement that locks it."""

    def __init__(self, statement: str, *values: int) -> None:
        self.statement = statement
        self.values = values

    @classmethod
    def partition(cls, id: PartitionId) -> Row:
        return cls("SELECT 1 FROM fairlane.partitions WHERE id = $1 FOR UPDATE", id.id)

    @classmethod
    def cursor(cls, id: PartitionId, group_id: int) -> Row:
        return cls(
            "SELECT 1 FROM fairlane.cursors WHERE partition_id = $1 AND group_id = $2 FOR UPDATE",
            id.id,
            group_id,
        )

    @classmethod
    def queue(cls, id: int) -> Row:
        return cls("SELECT 1 FROM fairlane.queues WHERE id = $1 FOR UPDATE", id)

    @classmethod
    def cursor_to_be(cls, group_id: int) -> Row:
        """Reserve the cursor that this group will get in the next new partition: its insert blocks."""
        return cls(
            "INSERT INTO fairlane.cursors (partition_id, group_id, committed)"
            " VALUES (pg_sequence_last_value('fairlane.partitions_id_seq') + 1, $1, 0) RETURNING 1",
            group_id,
        )


class SqliteBackend:
    many_brokers = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self.options: dict[str, Any] = {}

    async def make(self) -> None:
        """The file is made when it is opened."""

    async def open(self, clock: Clock | None) -> Store:
        return await SqliteStore.open(str(self.path), clock=clock)

    async def sql(self, statement: str, *values: Any) -> list[Any]:
        def run() -> list[Any]:
            with contextlib.closing(apsw.Connection(str(self.path))) as connection:
                connection.set_busy_timeout(5_000)
                return list(connection.execute(statement.replace("fairlane.", "").replace("$", "?"), values))

        return await asyncio.to_thread(run)

    @contextlib.asynccontextmanager
    async def hold(self, store: Store, row: Row) -> AsyncIterator[Arrived]:
        assert isinstance(store, SqliteStore)
        database = store._database
        entered, leave = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def occupy(_db: object, _now: int) -> None:
            loop.call_soon_threadsafe(entered.set)
            leave.wait(ARRIVAL_SECONDS_MAX * 3)

        holding = database.write(occupy)
        await entered.wait()

        async def arrived(*tasks: asyncio.Task[Any]) -> None:
            await until(lambda: database._writer._jobs.qsize() >= sum(not task.done() for task in tasks))

        try:
            yield arrived
        finally:
            leave.set()
            await holding

    @contextlib.asynccontextmanager
    async def stop_pop(self, store: Store, call: PopCall, clock: Clock) -> AsyncIterator[tuple[PopResult, Arrived]]:
        async def arrived(*tasks: asyncio.Task[Any]) -> None:
            await asyncio.wait(tasks)

        yield await store.messages.pop(call), arrived

    def seed_in_steps_of(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        monkeypatch.setattr(groups, "SEED_PARTITIONS", count)

    async def cut_connections(self) -> None:
        """Do nothing: there are no connections."""

    def deadlocks(self) -> list[str]:
        return []


class _OneTransaction:
    """A database with a single connection, whose transaction another object ends."""

    def __init__(self, connection: asyncpg.Connection[Any], clock: Clock, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self.time = clock

    async def write(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await self._connection.fetch(in_schema(statement, self._schema), *arguments)
        return rows


class PostgresBackend:
    """A PostgreSQL database for many tests of a configuration in this process.

    Creating a database takes longer than most tests. After some tests another one is created, because counting all
    queues gets slower with each test.
    """

    many_brokers = True

    def __init__(self, server: PostgresServer, configuration: Configuration) -> None:
        self._server = server
        self._name = f"{configuration.name}_{server.used[configuration.name] // TESTS_EACH}"
        server.used[configuration.name] += 1
        self.options: dict[str, Any] = {"statement_cache": configuration.statement_cache}
        if configuration.cell:
            self.options |= {"schema": configuration.schema, "cell": configuration.cell}
        self._schema = configuration.schema
        self.url = server.url(self._name)

    async def make(self) -> None:
        if self._name not in self._server.templates:
            async with self._server.connect() as admin:
                await admin.execute(f'CREATE DATABASE "{self._name}"')
            self._server.templates.add(self._name)

    async def open(self, clock: Clock | None) -> Store:
        return cast("Store", await PostgresStore.open(self.url, clock=clock, **self.options))

    async def sql(self, statement: str, *values: Any) -> list[Any]:
        async with self._connect() as connection:
            rows: list[Any] = await connection.fetch(in_schema(statement, self._schema), *values)
            return rows

    @contextlib.asynccontextmanager
    async def hold(self, store: Store, row: Row) -> AsyncIterator[Arrived]:
        async with self._connect() as holder, self._arrivals() as arrived:
            holding = holder.transaction()
            await holding.start()
            assert await holder.fetch(in_schema(row.statement, self._schema), *row.values), "there is nothing to hold"
            try:
                yield arrived
            finally:
                await holding.rollback()

    @contextlib.asynccontextmanager
    async def stop_pop(self, store: Store, call: PopCall, clock: Clock) -> AsyncIterator[tuple[PopResult, Arrived]]:
        async with self._connect() as connection, self._arrivals() as arrived:
            await prepare(connection)
            database = cast("Database", _OneTransaction(connection, clock, self._schema))
            async with connection.transaction():
                yield await PopRunner(database, POSTGRES_MESSAGES["pop"], TailCache())(call), arrived

    @contextlib.asynccontextmanager
    async def _arrivals(self) -> AsyncIterator[Arrived]:
        async with self._connect() as observer:

            async def arrived(*tasks: asyncio.Task[Any]) -> None:
                async def all_wait() -> bool:
                    waiting: int = await observer.fetchval(
                        "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'",
                        self._name,
                    )
                    return waiting >= sum(not task.done() for task in tasks)

                await until(all_wait)

            yield arrived

    def seed_in_steps_of(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        monkeypatch.setattr(groups, "SEED_PARTITIONS", count)

    async def cut_connections(self) -> None:
        await self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = $1 AND application_name LIKE 'fairlane%'",
            self._name,
        )

    def deadlocks(self) -> list[str]:
        # The statistics lag behind and do not name the session.
        reports = self._server.log().split("deadlock detected")[1:]
        return ["\n".join(report.splitlines()[:12]) for report in reports]

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[asyncpg.Connection[Any]]:
        async with self._server.connect(self._name) as connection:
            yield connection


class CellsBackend:
    """A home and a second cell on servers of their own. Each test creates its queues there in turn, the first in the
    second cell."""

    many_brokers = True

    def __init__(
        self, servers: Sequence[PostgresServer], configuration: Configuration, places: Sequence[int] = (1, 0)
    ) -> None:
        self._parts = [PostgresBackend(server, configuration) for server in servers]
        self._parts[1]._schema = "fairlane_1"
        self._home = self._parts[0]
        self.url = self._home.url
        self.options: dict[str, Any] = self._home.options
        self._places = itertools.cycle(places)
        self._asked = self._parts[:1] if set(places) == {0} else self._parts

    async def make(self) -> None:
        made = self._home._name in self._home._server.templates
        for part in self._parts:
            await part.make()
        if not made:
            async with await PostgresStore.open(self.url) as home:
                await add_cell(home, self._parts[1].url)

    async def open(self, clock: Clock | None) -> Store:
        store = await CellsStore.open(self.url, clock=clock, **self.options)
        cast("CellsStore", store).router.choose = self._choose
        return store

    async def _choose(self) -> int:
        return next(self._places)

    async def sql(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement in each cell that has queues. Returns the rows of both, or the sum of two counts."""
        found = [await part.sql(statement, *values) for part in self._asked]
        if all(len(rows) == 1 and len(rows[0]) == 1 and isinstance(rows[0][0], int) for rows in found):
            return [(sum(rows[0][0] for rows in found),)]
        return [row for rows in found for row in rows]

    def hold(self, store: Store, row: Row) -> AbstractAsyncContextManager[Arrived]:
        return self._parts[cell_of(max(row.values))].hold(store, row)

    def stop_pop(
        self, store: Store, call: PopCall, clock: Clock
    ) -> AbstractAsyncContextManager[tuple[PopResult, Arrived]]:
        return self._parts[cell_of(call.queue_id)].stop_pop(store, call, clock)

    def seed_in_steps_of(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        monkeypatch.setattr(groups, "SEED_PARTITIONS", count)

    async def cut_connections(self) -> None:
        for part in self._parts:
            await part.cut_connections()

    def deadlocks(self) -> list[str]:
        return [report for part in self._parts for report in part.deadlocks()]
