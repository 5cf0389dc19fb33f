"""The functions in the database are those of this version, whatever was there before."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import pytest

from fairlane.broker.broker import Broker
from fairlane.store.postgres.migrate import functions
from fairlane.store.postgres.query import SQL
from fairlane.store.statements import load
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

PACKAGE = "fairlane.store.postgres"


async def test_functions_of_another_text_are_replaced_at_the_next_start(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    url = await fresh_database(postgres18)
    async with Broker.open(url):
        pass
    connection = await asyncpg.connect(url)
    try:
        text = "SELECT prosrc FROM pg_proc WHERE oid = 'fairlane.never()'::regprocedure"
        before = await connection.fetchval(text)
        await connection.execute(
            "CREATE OR REPLACE FUNCTION fairlane.never() RETURNS timestamptz LANGUAGE sql IMMUTABLE AS 'SELECT now()';"
            "UPDATE fairlane.functions SET hash = 'another'"
        )
        async with Broker.open(url):
            assert await connection.fetchval(text) == before
    finally:
        await connection.close()


async def test_every_function_calls_what_there_is(postgres18: PostgresServer, fresh_database: FreshDatabase) -> None:
    """They are made with unchecked bodies, so that their order does not matter; made again, each body is checked."""
    url = await fresh_database(postgres18)
    async with Broker.open(url):
        pass
    connection = await asyncpg.connect(url)
    try:
        for text in functions():
            await connection.execute(text)
    finally:
        await connection.close()


WRITES = re.compile(
    r"\b(INSERT|UPDATE|DELETE|TRUNCATE|LOCK|NOTIFY|EXECUTE|FOR SHARE|FOR KEY SHARE)\b"
    r"|\b(pg_notify|pg_(?:try_)?advisory\w*|nextval|setval|set_config|clock_timestamp|random|gen_random_uuid)\("
)
"""Statements and calls that make a function VOLATILE: writes, locks, and values that differ between calls."""


async def test_a_function_that_only_reads_is_not_volatile(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    """A VOLATILE function in a WHERE clause bounds no index scan: it is called for every row of the table."""
    url = await fresh_database(postgres18)
    async with Broker.open(url):
        pass
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(
            "SELECT p.proname, p.prosrc, p.provolatile::text FROM pg_proc p"
            " JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_language l ON l.oid = p.prolang"
            " WHERE n.nspname = 'fairlane' AND p.prokind = 'f' AND l.lanname IN ('sql', 'plpgsql')"
        )
    finally:
        await connection.close()
    bodies = {name: re.sub(r"--.*", "", body) for name, body, _ in found}
    volatile = {name for name, body in bodies.items() if WRITES.search(body)}
    while callers := {
        name
        for name, body in bodies.items()
        if name not in volatile and volatile.intersection(re.findall(r"fairlane\.(\w+)\(", body))
    }:
        volatile |= callers
    assert len(bodies) > 60
    assert {name for name, _, volatility in found if volatility == "v"} == volatile


async def test_the_first_pop_of_a_group_asks_the_database_once_more_than_others(
    postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement is a round trip, and a client may limit a pop to a tenth of a second."""
    statements: list[str] = []
    execute, fetch = asyncpg.Connection.execute, asyncpg.Connection.fetch

    async def executed(connection: Any, query: str, *values: Any, **how: Any) -> Any:
        statements.append(query)
        return await execute(connection, query, *values, **how)

    async def fetched(connection: Any, query: str, *values: Any, **how: Any) -> Any:
        statements.append(query)
        return await fetch(connection, query, *values, **how)

    async def asked_by_pop(broker: Broker, group: str) -> list[str]:
        statements.clear()
        assert await broker.pop("q", group=group, auto_ack=True)
        return statements.copy()

    groups = [f"g{number}" for number in range(5)]
    async with Broker.open(await fresh_database(postgres18)) as broker:
        await broker.push("q", 1)
        await asked_by_pop(broker, "before")
        monkeypatch.setattr(asyncpg.Connection, "execute", executed)
        monkeypatch.setattr(asyncpg.Connection, "fetch", fetched)
        first = [await asked_by_pop(broker, group) for group in groups]
        await broker.push("q", 2)
        later = [await asked_by_pop(broker, group) for group in groups]
    # The minimum, because background services may send statements meanwhile.
    shortest = min(first, key=len)
    assert len(shortest) <= len(min(later, key=len)) + 1, shortest


async def test_every_statement_names_what_the_schema_has(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    """A statement that no other test reaches would fail only in production."""
    url = await fresh_database(postgres18)
    async with Broker.open(url):
        pass
    files = ("messages", "operations", "scheduled", "report", "doctor")
    own = {f"{file}.{name}": text for file in files for name, text in load(PACKAGE, f"{file}.sql").items()}
    connection = await asyncpg.connect(url)
    refused = []
    try:
        for name, text in {**own, **{name: text for name, (text, _) in SQL.items()}}.items():
            try:
                await connection.prepare(text)
            except asyncpg.PostgresError as error:
                refused.append(f"{name}: {error}")
    finally:
        await connection.close()
    assert refused == []
