"""`fairlane.sql` on the connections of each library, against a real server."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from django.db.utils import ConnectionHandler
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from fairlane import sql
from fairlane.broker.broker import Broker
from fairlane.errors import InvalidRequest
from fairlane.model.message import Message
from fairlane.wire.base import NULL
from tests.staged.conftest import Database
from tests.until import until

Run = Callable[[Callable[[Any], Any]], Awaitable[Any]]
"""Runs a function with a connection inside a transaction: committed, or rolled back if it raises."""


def sqlalchemy_url(database: Database, driver: str) -> sqlalchemy.URL:
    host = database.url.partition("host=")[2]
    return sqlalchemy.URL.create(
        f"postgresql+{driver}", username=database.role, database=database.name, query={"host": host}
    )


@contextlib.asynccontextmanager
async def on_psycopg(database: Database) -> AsyncIterator[Run]:
    async def run(work: Callable[[Any], Any]) -> Any:
        with psycopg.connect(database.role_url, row_factory=dict_row) as connection:
            return work(connection)

    yield run


@contextlib.asynccontextmanager
async def on_async_psycopg(database: Database) -> AsyncIterator[Run]:
    async def run(work: Callable[[Any], Any]) -> Any:
        async with await psycopg.AsyncConnection.connect(database.role_url) as connection:
            return await work(connection)

    yield run


@contextlib.asynccontextmanager
async def on_asyncpg(database: Database) -> AsyncIterator[Run]:
    async with asyncpg.create_pool(database.role_url, min_size=1, max_size=1) as pool:

        async def run(work: Callable[[Any], Any]) -> Any:
            async with pool.acquire() as connection, connection.transaction():
                return await work(connection)

        yield run


@contextlib.asynccontextmanager
async def on_session(database: Database) -> AsyncIterator[Run]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(database, "psycopg"))

    async def run(work: Callable[[Any], Any]) -> Any:
        with Session(engine) as session, session.begin():
            return work(session)

    yield run
    engine.dispose()


@contextlib.asynccontextmanager
async def on_sqlalchemy_connection(database: Database) -> AsyncIterator[Run]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(database, "psycopg"))

    async def run(work: Callable[[Any], Any]) -> Any:
        with engine.begin() as connection:
            return work(connection)

    yield run
    engine.dispose()


def async_session(driver: str) -> Callable[[Database], contextlib.AbstractAsyncContextManager[Run]]:
    @contextlib.asynccontextmanager
    async def on_async_session(database: Database) -> AsyncIterator[Run]:
        engine = create_async_engine(sqlalchemy_url(database, driver))

        async def run(work: Callable[[Any], Any]) -> Any:
            async with AsyncSession(engine) as session, session.begin():
                return await work(session)

        yield run
        await engine.dispose()

    return on_async_session


@contextlib.asynccontextmanager
async def on_async_sqlalchemy_connection(database: Database) -> AsyncIterator[Run]:
    engine = create_async_engine(sqlalchemy_url(database, "asyncpg"))

    async def run(work: Callable[[Any], Any]) -> Any:
        async with engine.begin() as connection:
            return await work(connection)

    yield run
    await engine.dispose()


@contextlib.asynccontextmanager
async def on_django(database: Database) -> AsyncIterator[Run]:
    """Without a Django project: `django.db.connection` is one of such a handler, and asks for settings only once."""
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True, LOGGING_CONFIG=None)
        django.setup()
    host = database.url.partition("host=")[2]
    options = {"ENGINE": "django.db.backends.postgresql", "NAME": database.name, "USER": database.role, "HOST": host}

    async def run(work: Callable[[Any], Any]) -> Any:
        connections["default"] = connection = ConnectionHandler({"default": options})["default"]
        try:
            with transaction.atomic():
                return work(connection)
        finally:
            connection.close()

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # this test runs on an event loop; an application does not
        yield run


LIBRARIES = {
    "psycopg": on_psycopg,
    "async_psycopg": on_async_psycopg,
    "asyncpg": on_asyncpg,
    "session": on_session,
    "sqlalchemy_connection": on_sqlalchemy_connection,
    "async_session_asyncpg": async_session("asyncpg"),
    "async_session_psycopg": async_session("psycopg"),
    "async_sqlalchemy_connection": on_async_sqlalchemy_connection,
    "django": on_django,
}


@pytest.fixture(params=LIBRARIES)
async def run(request: pytest.FixtureRequest, database: Database, broker: Broker) -> AsyncIterator[Run]:
    async with LIBRARIES[request.param](database) as run:
        yield run


@dataclasses.dataclass
class Order:
    id: int
    made_at: datetime


async def test_a_message_is_enqueued_with_its_options(run: Run, broker: Broker) -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    id = await run(
        lambda connection: sql.enqueue(
            connection,
            "orders",
            Order(1, at),
            partition="p:1%",
            type="made",
            headers={"a": "é"},
            deliver_at=at,
            priority=3,
            max_attempts=4,
        )
    )
    [message] = await broker.pop("orders", wait=60)
    await broker.ack(message)
    assert message.data == {"id": 1, "made_at": "2026-01-31T12:00:00Z"}
    assert (message.transaction_id, message.partition, message.type) == (id, "p:1%", "made")
    assert (message.headers, message.max_attempts) == ({"a": "é"}, 4)


async def test_a_rollback_takes_the_message_back(run: Run, broker: Broker, database: Database) -> None:
    def failing(connection: Any) -> Any:
        found = sql.enqueue(connection, "orders", "gone")
        if not hasattr(found, "__await__"):
            raise ZeroDivisionError

        async def rest() -> None:
            await found
            raise ZeroDivisionError

        return rest()

    with pytest.raises(ZeroDivisionError):
        await run(failing)
    assert await run(lambda connection: sql.enqueue(connection, "orders", "kept", transaction_id="own")) == "own"
    [message] = await broker.pop("orders", wait=60)
    assert message.data == "kept"


async def test_a_delay_counts_from_the_clock_of_the_database(run: Run, broker: Broker, database: Database) -> None:
    await run(lambda connection: sql.enqueue(connection, "orders", 1, delay_ms=timedelta(hours=1)))

    async def scheduled() -> bool:
        return await database.staged() == 0

    await until(scheduled)
    [message] = (await broker.scheduled.page("orders")).messages
    assert abs(message.deliver_at / 1e6 - datetime.now(UTC).timestamp() - 3600) < 600


async def test_a_message_is_completed_once(run: Run, broker: Broker) -> None:
    await broker.push("orders", 1)
    [message] = await broker.pop("orders", wait=60)
    assert await run(lambda connection: sql.complete(connection, message)) is None
    with pytest.raises(Exception, match="the lease of this message is lost, or the message is finished"):
        await run(lambda connection: sql.complete(connection, [message]))
    assert not await broker.pop("orders")


async def test_a_refusal_of_the_database_is_an_error_of_the_library(run: Run) -> None:
    with pytest.raises(Exception, match="queue must not be empty"):
        await run(lambda connection: sql.enqueue(connection, "", 1))


class Foreign:
    """No connection of any library."""


@pytest.mark.parametrize(
    ("connection", "error"),
    [
        (sqlite3.Connection.__new__(sqlite3.Connection), "only on PostgreSQL"),
        (Foreign(), "psycopg 3, asyncpg, SQLAlchemy or Django, not Foreign"),
    ],
)
def test_other_connections_are_refused(connection: Any, error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        sql.enqueue(connection, "orders", 1)


def test_a_session_on_sqlite_is_refused() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with Session(engine) as session, pytest.raises(InvalidRequest, match="only on PostgreSQL"):
        sql.enqueue(session, "orders", 1)
    engine.dispose()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"data": object()}, "cannot be written as JSON"),
        ({"data": float("nan")}, "has nan"),
        ({"deliver_at": datetime(2026, 1, 1)}, "without a time zone"),
        ({"deliver_at": 1, "delay_ms": 1}, "two ways to say when"),
        ({"delay_ms": -1}, "delay_ms is -1"),
    ],
)
def test_bad_input_is_refused_before_it_is_sent(options: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidRequest, match=error):
        sql.enqueue(Foreign(), "orders", **{"data": 1, **options})


def test_a_message_without_a_lease_cannot_be_completed() -> None:
    with pytest.raises(InvalidRequest, match="has no lease"):
        sql.complete(Foreign(), Message(id="1", transaction_id="t", raw=NULL))
