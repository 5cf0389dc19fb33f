"""What the server knows of the sessions of a broker, so that it ends those of one that froze or is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

# Imported here, for a broker imports them when it opens, on the event loop of the test.
import fairlane.store.postgres.store  # noqa: F401
from fairlane.broker.broker import Broker
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

NAMES = ["idle_in_transaction_session_timeout", "client_connection_check_interval"]
SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY ($1) AND source <> 'default' ORDER BY name"


async def test_sessions_are_ended_that_do_nothing_inside_a_transaction_or_whose_client_is_gone(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    async with Broker.open(await fresh_database(postgres18)) as broker:
        rows = await broker.store._database.read(SETTINGS, NAMES)  # type: ignore[attr-defined]
        assert [tuple(row) for row in rows] == [(NAMES[1], "5000"), (NAMES[0], "5000")]
        # Over a socket of this machine they count for nothing, and are shown as such.
        public_text = "SELECT name FROM pg_settings WHERE name LIKE 'tcp\\_%' AND source = 'client' ORDER BY name"
        rows = await broker.store._database.read(public_text)  # type: ignore[attr-defined]
        assert [row[0] for row in rows] == [
            *("tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout"),
        ]


async def test_a_question_gets_its_answer_while_every_connection_waits(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    url = await fresh_database(postgres18)
    stranger: asyncpg.Connection[Any] = await asyncpg.connect(url)
    async with Broker.open(url, connections=2) as broker:
        database = broker.store._database  # type: ignore[attr-defined]
        transaction = stranger.transaction()
        await transaction.start()
        await stranger.execute("LOCK TABLE fairlane.flags")
        waiting = [asyncio.create_task(broker.store.flags.on()) for _ in range(2)]
        while database.in_use() != (2, 2):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await broker.store.answer()
        assert not any(task.done() for task in waiting)
        await transaction.rollback()
        await asyncio.gather(*waiting)
    await stranger.close()
