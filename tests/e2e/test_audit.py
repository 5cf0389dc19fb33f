"""The audit log of a broker that dies: it has the actions that began, with an unknown result."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio import to_thread
from pathlib import Path

import asyncpg

from fairlane import Client
from fairlane.errors import Unavailable
from tests.e2e.conftest import StartBroker
from tests.e2e.test_keys import command
from tests.until import until


async def test_a_broker_killed_between_an_action_and_its_end_leaves_that_it_began(
    database_url: str, start: StartBroker, tmp_path: Path
) -> None:
    """The test locks the table that the action needs, and then the end of the log, so that each step is visible."""
    _, key, _ = await command("key", "create", "--role", "admin", "--store", database_url, cwd=tmp_path)
    broker = await start(database_url)
    action, log, watch = [await asyncpg.connect(database_url) for _ in range(3)]
    async with Client(broker.url, token=key, attempts=1) as client:
        await client.queues.configure("orders")
        holding = action.transaction()
        await holding.start()
        await action.execute("LOCK TABLE fairlane.queues IN SHARE MODE")
        deleting = asyncio.create_task(client.queues.delete("orders"))

        async def begun() -> int | None:
            statement = "SELECT number FROM fairlane.audit_entries WHERE action = 'queues.delete' AND outcome = 'begun'"
            found: int | None = await watch.fetchval(statement)
            return found

        number = await until(begun)
        ending = log.transaction()
        await ending.start()
        await log.execute("SELECT number FROM fairlane.audit_head FOR UPDATE")
        await holding.rollback()

        async def deleted() -> bool:
            return not await watch.fetchval("SELECT count(*) FROM fairlane.queues WHERE name = 'orders'")

        await until(deleted)
        os.kill(broker.pid, signal.SIGKILL)
        await asyncio.wait([deleting])
        assert isinstance(deleting.exception(), Unavailable), "nobody was told that it was done"
    await to_thread(broker.kill)
    await ending.rollback()
    for connection in (action, log, watch):
        await connection.close()
    await to_thread(broker.start)
    async with Client(broker.url, token=key) as client:
        [entry] = [one for one in await client.audit.page() if one.number == number]
        assert (entry.caller, entry.action, entry.outcome, entry.ended_at) == (
            "key:admin",
            "queues.delete",
            "begun",
            None,
        )
        assert "orders" in entry.target
        assert (await client.audit.verify()).whole
