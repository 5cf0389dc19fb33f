"""Session settings with which the server ends the sessions of a broker that froze or died."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import asyncpg
import pytest

# Imported here, because a broker imports them when it opens, on the event loop of the test.
import fairlane.store.postgres.store  # noqa: F401
from fairlane.broker.broker import Broker
from fairlane.errors import OutcomeUnknown, StoreUnavailable
from fairlane.store.postgres import connection, driver
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer
from tests.until import until

NAMES = ["idle_in_transaction_session_timeout", "client_connection_check_interval"]
SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY ($1) AND source <> 'default' ORDER BY name"


async def test_sessions_are_ended_that_do_nothing_inside_a_transaction_or_whose_client_is_gone(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    async with Broker.open(await fresh_database(postgres18)) as broker:
        rows = await broker._engine.store._home._database.read(SETTINGS, NAMES)  # type: ignore[attr-defined]
        assert [tuple(row) for row in rows] == [(NAMES[1], "5000"), (NAMES[0], "5000")]
        # Over a socket of this machine they count for nothing, and are shown as such.
        public_text = "SELECT name FROM pg_settings WHERE name LIKE 'tcp\\_%' AND source = 'client' ORDER BY name"
        rows = await broker._engine.store._home._database.read(public_text)  # type: ignore[attr-defined]
        assert [row[0] for row in rows] == [
            *("tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout"),
        ]


async def test_a_question_gets_its_answer_while_every_connection_waits(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    url = await fresh_database(postgres18)
    stranger: asyncpg.Connection[Any] = await asyncpg.connect(url)
    async with Broker.open(url, connections=2) as broker:
        database = broker._engine.store._home._database  # type: ignore[attr-defined]
        transaction = stranger.transaction()
        await transaction.start()
        await stranger.execute("LOCK TABLE fairlane.flags")
        waiting = [asyncio.create_task(broker._engine.store.flags.enabled()) for _ in range(2)]
        while database.in_use() != (2, 2):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await broker._engine.store.check_health()
        assert not any(task.done() for task in waiting)
        await transaction.rollback()
        await asyncio.gather(*waiting)
    await stranger.close()


async def test_a_health_check_over_a_connection_in_an_undefined_state_says_that_nobody_answers(
    postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is in an undefined state after some lost connections, and says so by an error of its own."""

    async def undefined(*_: Any) -> None:
        raise asyncpg.InternalClientError("cannot switch to state 11; another operation (2) is in progress")

    async with Broker.open(await fresh_database(postgres18)) as broker:
        with monkeypatch.context() as patched:
            patched.setattr(asyncpg.Connection, "fetchval", undefined)
            with pytest.raises(StoreUnavailable, match="the server ended the connection"):
                await broker._engine.store.check_health()
        await broker._engine.store.check_health()


async def test_a_connection_that_ended_while_nobody_used_it_is_replaced(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    url = await fresh_database(postgres18)
    stranger: asyncpg.Connection[Any] = await asyncpg.connect(url)
    async with Broker.open(url, connections=1) as broker:
        database = broker._engine.store._home._database  # type: ignore[attr-defined]
        [(pid,)] = await database.read("SELECT pg_backend_pid()")
        await stranger.execute("SELECT pg_terminate_backend($1)", pid)
        await until(lambda: not database._pool.get_size())
        [(other,)] = await database.read("SELECT pg_backend_pid()")
        assert other != pid
        await until(lambda: database.in_use() == (1, 0))
    await stranger.close()


async def test_whoever_waits_for_a_connection_gets_the_next_that_is_free(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    async with Broker.open(await fresh_database(postgres18), connections=2) as broker:
        database = broker._engine.store._home._database  # type: ignore[attr-defined]
        found = await asyncio.gather(*(database.read("SELECT pg_backend_pid()") for _ in range(50)))
        assert len({pid for [(pid,)] in found}) <= 2
        await until(lambda: database.in_use() == (2, 0))  # the broker asks for something now and then
        # A call that was given up on leaves its connection to the next, when the server has ended it.
        late = [asyncio.create_task(database.read("SELECT pg_sleep(60)")) for _ in range(2)]
        await until(lambda: database.in_use() == (2, 2))
        for task in late:
            task.cancel()
        await asyncio.gather(*(database.read("SELECT 1") for _ in range(4)))
        await until(lambda: database.in_use()[1] == 0)


async def test_a_session_that_does_not_even_end_is_told_as_an_unknown_outcome(
    postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error of the driver may reach the caller, although returning the connection fails as well."""
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    database = await connection.open_database(
        await fresh_database(postgres18), connections=1, statement_cache=True, clock=None
    )
    monkeypatch.setattr(connection, "STATEMENT_SECONDS", 0.2)
    [(pid,)] = await database.read("SELECT pg_backend_pid()")
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(OutcomeUnknown):
            await database.write("SELECT 1")
        assert database.in_use()[1] == 0
    finally:
        os.kill(pid, signal.SIGCONT)
    await database.close()


async def test_the_server_is_asked_for_its_own_types_by_one_connection_only(
    postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[frozenset[int]] = []
    ask = asyncpg.Connection._introspect_types

    async def counted(self: object, typeoids: frozenset[int], seconds: float | None) -> object:
        asked.append(typeoids)
        return await ask(self, typeoids, seconds)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", counted)
    monkeypatch.setattr(driver._Connection, "_types", {})
    url = await fresh_database(postgres18)
    own = "SELECT $1::bigint[] || 3::bigint, $2::boolean[]"
    for statement_cache in (True, False):
        for _ in range(2):
            database = await connection.open_database(url, connections=1, statement_cache=statement_cache, clock=None)
            assert [tuple(row) for row in await database.read(own, [1, 2], [True])] == [([1, 2, 3], [True])]
            assert [tuple(row) for row in await database.read(own, [4], [False])] == [([4, 3], [False])]
            await database.close()
    assert len(asked) == 1
    # A user-defined type may have another definition later.
    stranger: asyncpg.Connection[Any] = await asyncpg.connect(url)
    await stranger.execute("CREATE TYPE pair AS (a int, b int)")
    await stranger.close()
    for _ in range(2):
        database = await connection.open_database(url, connections=1, statement_cache=True, clock=None)
        [[pair]] = await database.read("SELECT ROW(1, 2)::pair")
        assert tuple(pair) == (1, 2)
        await database.close()
    assert len(asked) == 3


async def test_the_default_isolation_level_of_the_database_is_not_that_of_the_broker(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    """A statement must see what was committed while it waited for a lock."""
    url = await fresh_database(postgres18)
    stranger: asyncpg.Connection[Any] = await asyncpg.connect(url)
    name = await stranger.fetchval("SELECT quote_ident(current_database())")
    await stranger.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    await stranger.close()
    async with Broker.open(url) as broker:
        database = broker._engine.store._home._database  # type: ignore[attr-defined]
        show = "SHOW transaction_isolation"
        assert [tuple(row) for row in await database.read(show)] == [("read committed",)]
        assert await database.transact(lambda connection: connection.fetchval(show)) == "read committed"


OPEN = """
SELECT query FROM pg_stat_activity
WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
"""


@pytest.mark.parametrize("prepared", [False, True])
async def test_a_read_that_is_given_up_leaves_no_transaction_open(
    postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    url = await fresh_database(postgres18)
    stranger: asyncpg.Connection[Any] = await asyncpg.connect(url)
    prepare = asyncpg.Connection._get_statement

    async def given_up(self: object, *arguments: Any, **more: Any) -> Any:
        """Cancel the caller after the server has parsed the statement and before it runs."""
        statement = await prepare(self, *arguments, **more)
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await asyncio.sleep(0)
        return statement

    database = await connection.open_database(url, connections=2, statement_cache=True, clock=None)
    statement = "SELECT count(*) FROM pg_class WHERE relpages <> $1"
    if prepared:
        await database.read(statement, 7)
    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "_get_statement", given_up)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(database.read(statement, 7))
    assert [row["query"] for row in await stranger.fetch(OPEN)] == []
    assert database.in_use() == (1, 0)
    assert await database.read(statement, 7)
    await database.close()
    await stranger.close()
