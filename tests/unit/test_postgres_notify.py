"""Brokers on one PostgreSQL discover each other, and a single broker sends no notifications."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

# Imported here, because a broker imports them when it opens, on the event loop of the test.
import fairlane.store.postgres.store  # noqa: F401
from fairlane.broker.broker import Broker
from fairlane.store.postgres import notify
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer
from tests.until import until


async def test_a_broker_that_is_alone_sends_no_hints_until_another_comes(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    url = await fresh_database(postgres18)
    stranger: asyncpg.Connection[Any] = await asyncpg.connect(url)
    heard: list[str] = []
    await stranger.add_listener("fairlane", lambda *notified: heard.append(str(notified[-1])))
    async with Broker.open(url) as one:
        await until(lambda: one._engine.store.sole_broker)
        await one.push("orders", 1)
        async with Broker.open(url) as other:
            await until(lambda: not one._engine.store.sole_broker)
            # Notifications come in the order of their commits.
            await until(lambda: "here" in heard)
            assert [word for word in heard if word != "0"] == ["who", "who", "here"]
            await other.pop("orders", auto_ack=True)
            waiting = asyncio.create_task(other.pop("orders", wait=60))
            await until(lambda: len(other._engine.waiters))
            await one.push("orders", 2)
            [message] = await waiting
            assert message.data == 2
            assert not one._engine.store.sole_broker
            assert not other._engine.store.sole_broker
    await stranger.close()


async def test_a_broker_whose_others_are_gone_is_alone_again(
    postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "_HEARD_SECONDS", 0.1)
    url = await fresh_database(postgres18)
    async with Broker.open(url) as one:
        async with Broker.open(url) as other:
            for broker in (one, other):
                await until(lambda broker=broker: broker._engine.store._home._notifier._heard_at > 0)  # type: ignore[misc]
        await until(lambda: one._engine.store.sole_broker)


async def test_who_lost_the_connection_for_hints_asks_again(
    postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "_RECONNECT_SECONDS", 0.01)
    url = await fresh_database(postgres18)
    stranger: asyncpg.Connection[Any] = await asyncpg.connect(url)
    async with Broker.open(url) as one:
        await until(lambda: one._engine.store.sole_broker)
        await stranger.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE '%pg_notify%' AND query NOT LIKE '%activity%'"
        )
        await until(lambda: not one._engine.store.sole_broker)
        await until(lambda: one._engine.store.sole_broker)
    await stranger.close()
