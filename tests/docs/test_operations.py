"""The procedures of docs/operations.md for privileges and backups work as written."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fairlane import App, Broker, Client, PushItem, Seek
from fairlane.testing import AppTest
from tests.docs.pages import ROOT, blocks, database, psql
from tests.postgres import PostgresServer, binaries

PAGE = ROOT / "docs/operations.md"
VIEWS = ("messages", "queue_depths", "active_leases", "partition_utilisation", "stuck_lanes", "retention_history")


def shown(language: str, text: str) -> str:
    """Return the block of the page that contains this text."""
    [found] = [block.text for block in blocks(PAGE) if block.language == language and text in block.text]
    return found


async def administrate(server: PostgresServer, sql: str) -> None:
    await run(psql(server, sql), ROOT)


async def run(line: str, folder: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{binaries(18)}:{os.environ['PATH']}"}
    shell = partial(subprocess.run, ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True)
    done = await asyncio.to_thread(shell)
    assert done.returncode == 0, done.stderr


@pytest.fixture
async def queues(postgres18: PostgresServer) -> AsyncIterator[str]:
    """Create the database of the page, as it says."""
    try:
        await administrate(postgres18, shown("sql", "CREATE ROLE fairlane"))
        yield database(postgres18)
    finally:
        async with postgres18.connect() as admin:
            await admin.execute("DROP DATABASE IF EXISTS queues WITH (FORCE)")
            await admin.execute("DROP DATABASE IF EXISTS restored WITH (FORCE)")
            await admin.execute("DROP ROLE IF EXISTS fairlane, looker")


async def verbs(client: Client, name: str) -> None:
    """Call something of every family that has statements of its own."""
    options: dict[str, Any] = {
        "retention_enabled": True,
        "completed_retention_seconds": 1,
        "retry_limit": 0,
        "dead_letter_queue": "d",
    }
    await client.queues.configure(name, **options)
    await client.push_many([PushItem(queue=name, payload=b"%d" % number) for number in range(3)])
    await client.push(name, 3, delay_ms=3_600_000)
    await client.push(name, 4, partition="other", priority=9, trace_id="0198c2d1-7a34-7c11-b1f0-3d2f9c6a5e10")
    batch = await client.pop(name, batch=2, group="g", partition="Default")
    assert (await client.renew(batch)).renewed
    await client.ack(batch[0], result={"done": True})
    await client.nack(batch[1], error="failed")
    [letter] = await client.dead_letters.page(name)
    await client.dead_letters.replay(name, ids=[letter.id])
    async with client.transaction() as transaction:
        transaction.push(f"{name}.next", 1)
    await client.groups.seek(name, "g", Seek("beginning"))
    await client.pauses.pause(name)
    await client.pauses.resume(name)
    await client.retention.run()
    await client.schedules.define(name, "ticks", every="1h")
    await client.schedules.run(name)
    assert await client.findings.all() is not None
    assert await client.queues.delete(name)


async def test_a_role_with_these_privileges_and_no_others_runs_a_broker(
    queues: str, postgres18: PostgresServer
) -> None:
    async with AppTest(App(), store=queues) as test:
        await verbs(test.client, "first")
        await test.push("orders", {"total": 42})
        assert len(await test.client.pop("orders")) == 1
    await administrate(postgres18, shown("sql", "REVOKE CREATE"))
    async with AppTest(App(), store=queues) as test:
        await verbs(test.client, "second")
    await administrate(postgres18, shown("sql", "CREATE ROLE looker"))
    looker = await asyncpg.connect(queues.replace("fairlane@", "looker@"))
    try:
        for view in VIEWS:
            await looker.fetch(f"SELECT * FROM fairlane.{view}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await looker.execute("DELETE FROM fairlane.segments")
    finally:
        await looker.close()


BackUp = Callable[[], Awaitable[str]]
"""Function that makes a backup, restores it elsewhere, and returns where."""


async def test_a_backup_of_a_file_under_load_is_one_moment_and_is_gone_on_from(tmp_path: Path) -> None:
    async def back_up() -> str:
        await run(shown("sh", "fairlane backup"), tmp_path)
        restore = shown("sh", "fairlane restore").strip()
        await run(f"{restore} --store restored.db --data-dir restored", tmp_path)
        return f"sqlite:///{tmp_path}/restored.db"

    await under_load(f"sqlite:///{tmp_path}/fairlane.db", back_up)


async def test_a_dump_under_load_is_one_moment_and_is_gone_on_from(
    queues: str, postgres18: PostgresServer, tmp_path: Path
) -> None:
    restored = queues.replace("/queues?", "/restored?")

    async def back_up() -> str:
        dump = shown("sh", "pg_dump").replace("postgresql://fairlane@db/queues", f"'{queues}'")
        restore = shown("sh", "pg_restore").replace("postgresql://fairlane@db/restored", f"'{restored}'")
        async with postgres18.connect() as admin:
            await admin.execute("CREATE DATABASE restored OWNER fairlane")
        await run(dump, tmp_path)
        await run(restore, tmp_path)
        return restored

    await under_load(queues, back_up)


async def under_load(url: str, back_up: BackUp) -> None:
    """Back up while a producer pushes, one batch is done and another is leased. Then continue from the backup."""
    pushed: list[int] = []
    async with Broker.open(url) as broker:

        async def produce() -> None:
            for number in range(10**9):
                await broker.push("orders", number, partition="p", transaction_id=f"order-{number}")
                pushed.append(number)

        producer = asyncio.create_task(produce())
        try:
            done = await broker.pop("orders", batch=5, wait=30)
            await broker.ack(done)
            assert await broker.pop("orders", batch=1, wait=30, lease_seconds=1)
            before = len(pushed)
            restored = await back_up()
            later = await broker.pop("orders", wait=30)
        finally:
            producer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await producer
        after = len(pushed)
        assert after > before, "it went on meanwhile"
    async with Broker.open(restored) as broker:
        assert not (await broker.ack(later, check=False))[0].success, "a lease of which the backup knows nothing"
        again = await broker.push("orders", 0, partition="p", transaction_id="order-0")
        assert again.status == "duplicate"
        [there] = await broker.queues.counted("orders")
        count = there.head
        assert before <= count <= after + 1
        await broker.push("orders", -1, partition="p")
        seen: list[int] = []
        while not seen or seen[-1] != -1:
            batch = await broker.pop("orders", batch=1000, wait=30)
            seen += [message.data for message in batch]
            await broker.ack(batch)
        assert seen == [*range(len(done), count), -1], "what was not done, in order, without gaps, and once"
