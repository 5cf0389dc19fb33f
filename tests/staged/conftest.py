"""A database with a role of an application that may enqueue, and a broker on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import asyncpg
import pytest

from fairlane.broker.broker import Broker
from fairlane.store.postgres.store import PostgresStore
from tests.broker_process import BrokerProcess, broker_process
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

_numbers = count(1)


@dataclass
class Database:
    """A migrated database. `url` is for the broker, and `role` belongs to an application."""

    server: PostgresServer
    url: str
    role: str

    @property
    def name(self) -> str:
        return self.url.partition("@/")[2].partition("?")[0]

    @property
    def role_url(self) -> str:
        return self.url.replace("postgres@", f"{self.role}@")

    async def sql(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement as the owner."""
        connection = await asyncpg.connect(self.url)
        try:
            rows: list[Any] = await connection.fetch(statement, *values)
            return rows
        finally:
            await connection.close()

    async def staged(self) -> int:
        [[found]] = await self.sql("SELECT count(*) FROM fairlane.staged")
        return int(found)


async def _migrate(url: str) -> None:
    await (await PostgresStore.open(url)).close()


@pytest.fixture
def role() -> str:
    return f"app_{next(_numbers)}"


@pytest.fixture
async def database(postgres18: PostgresServer, fresh_database: FreshDatabase, role: str) -> AsyncIterator[Database]:
    await postgres18.make_template("staged", _migrate)
    url = await fresh_database(postgres18, template="staged")
    found = Database(postgres18, url, role)
    await found.sql(f"CREATE ROLE {role} LOGIN")
    yield found
    await found.sql(f"DROP OWNED BY {role}")
    await found.sql(f"DROP ROLE {role}")


@pytest.fixture
async def broker(database: Database) -> AsyncIterator[Broker]:
    async with Broker.open(database.url) as broker:
        await broker.staged.grant(database.role)
        yield broker


@pytest.fixture
async def app(database: Database, broker: Broker) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection of the application, whose role may enqueue into every queue."""
    connection = await asyncpg.connect(database.role_url)
    yield connection
    await connection.close()


@contextlib.asynccontextmanager
async def serving(database: Database) -> AsyncIterator[BrokerProcess]:
    """Run a broker process on the database. Its start must not block the event loop."""
    context = broker_process(database.url)
    started = await asyncio.to_thread(context.__enter__)
    try:
        yield started
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
