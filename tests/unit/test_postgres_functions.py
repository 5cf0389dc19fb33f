"""Functions in the database are those of this code, whatever was there before."""

from __future__ import annotations

import asyncpg

from fairlane.broker.broker import Broker
from fairlane.store.postgres.migrate import functions
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer


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
