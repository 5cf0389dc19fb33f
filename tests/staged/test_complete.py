"""Messages that a handler finishes in its own transaction: the effect happens once, wherever the worker dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fairlane import App, Client, sql
from fairlane.broker.broker import Broker
from fairlane.errors import LaneLocked
from fairlane.model.message import Message
from fairlane.worker import Worker
from fairlane.worker.context import Context
from tests.broker_process import BrokerProcess
from tests.staged.conftest import Database, serving
from tests.until import until

COMPLETE = "SELECT fairlane.complete($1, $2, $3)"


async def complete(app: Any, message: Message[Any]) -> None:
    await app.execute(COMPLETE, message.lease, str(message.partition_id), message.position)


@pytest.fixture(params=["per_key", "unordered"])
async def queue(request: pytest.FixtureRequest, broker: Broker) -> str:
    await broker.queues.configure("jobs", ordering=request.param, lease_seconds=60)
    return "jobs"


async def test_a_message_is_finished_by_the_commit(broker: Broker, app: asyncpg.Connection, queue: str) -> None:
    await broker.push(queue, 1)
    await broker.push(queue, 2)
    found = await broker.pop(queue, batch=2)
    for message in found:
        async with app.transaction():
            await complete(app, message)
    assert not await broker.pop(queue)
    assert [one.success for one in await broker.ack(found)] == [True, True]


async def test_a_rollback_leaves_the_message_to_the_lease(broker: Broker, app: asyncpg.Connection, queue: str) -> None:
    await broker.push(queue, 1)
    [message] = await broker.pop(queue)
    outer = app.transaction()
    await outer.start()
    await complete(app, message)
    await outer.rollback()
    assert await broker.release(message.lease) == 1
    [again] = await broker.pop(queue)
    assert (again.data, again.failed_attempts) == (1, 0)
    await broker.ack(again)


async def test_messages_are_finished_in_any_order(broker: Broker, app: asyncpg.Connection, queue: str) -> None:
    for n in range(3):
        await broker.push(queue, n)
    found = await broker.pop(queue, batch=3)
    await complete(app, found[2])
    await complete(app, found[0])
    await broker.release(found[1].lease)
    again = await broker.pop(queue, batch=3)
    assert [one.data for one in again] == [1]
    await complete(app, again[0])
    assert not await broker.pop(queue)


async def test_a_lost_lease_fails_the_transaction(broker: Broker, app: asyncpg.Connection, queue: str) -> None:
    await broker.push(queue, 1)
    [message] = await broker.pop(queue)
    await broker.release(message.lease)
    [again] = await broker.pop(queue)
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="the lease of this message is lost"):
        await complete(app, message)
    await complete(app, again)
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="or the message is finished"):
        await complete(app, again)


async def test_a_failed_message_cannot_be_completed(broker: Broker, app: asyncpg.Connection, queue: str) -> None:
    await broker.push(queue, 1)
    [message] = await broker.pop(queue)
    await broker.ack(message, "failed")
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):
        await complete(app, message)


async def test_nobody_gets_a_message_whose_transaction_is_open_after_its_lease(
    broker: Broker, app: asyncpg.Connection, database: Database, queue: str
) -> None:
    await broker.push(queue, 1)
    [message] = await broker.pop(queue, lease_seconds=1)
    outer = app.transaction()
    await outer.start()
    await complete(app, message)

    async def expired() -> bool:
        [[at]] = await database.sql(
            "SELECT coalesce((SELECT max(ends_at) FROM fairlane.claims), (SELECT max(ready_at) FROM fairlane.cursors))"
            " < clock_timestamp()"
        )
        return bool(at)

    await until(expired)
    with contextlib.suppress(LaneLocked):  # an unordered queue says so
        assert not await broker.pop(queue)
    await outer.commit()
    assert not await broker.pop(queue)
    assert [one.success for one in await broker.ack([message])] == [True]


async def test_a_limited_queue_has_room_after_the_commit(broker: Broker, app: asyncpg.Connection) -> None:
    await broker.queues.configure("small", max_size=1)
    await broker.push("small", 1)
    [message] = await broker.pop("small")
    await complete(app, message)
    await broker.push("small", 2)


@pytest.fixture
async def served(database: Database) -> AsyncIterator[BrokerProcess]:
    """A broker process on the database, and a table for effects."""
    await database.sql("CREATE TABLE effects (id int)")
    await database.sql(f"GRANT ALL ON effects TO {database.role}")
    async with Broker.open(database.url) as broker:
        await broker.staged.grant(database.role)
    async with serving(database) as process:
        yield process


async def drained(client: Client, *queues: str) -> None:
    async def empty() -> bool:
        lags = [[one.total_lag for one in await client.groups.all(queue)] for queue in queues]
        return lags == [[0]] * len(queues)

    await until(empty, seconds=100)


@pytest.mark.timeout(200)
async def test_an_effect_happens_once_wherever_the_worker_dies(database: Database, served: BrokerProcess) -> None:
    points = ["never", "before", "never", "completed", "committed", "never", "before", "committed", "completed"]
    async with Client(served.url) as client:
        for queue in ("jobs", "blocking jobs"):
            await client.queues.configure(queue, lease_seconds=2)
        for id, dies in enumerate(points):
            for queue, number in (("jobs", id), ("blocking jobs", 100 + id)):
                await client.push(queue, {"id": number, "dies": dies}, partition=f"p{id % 2}")
        ended = asyncio.Event()
        working = asyncio.create_task(_keep_working(served.url, database.role_url, ended))
        try:
            await drained(client, "jobs", "blocking jobs")
        finally:
            ended.set()
            await working
    effects = [id for (id,) in await database.sql("SELECT id FROM effects ORDER BY id")]
    assert effects == [*range(len(points)), *range(100, 100 + len(points))]


async def _keep_working(url: str, database: str, ended: asyncio.Event) -> None:
    """Run a worker, and another one whenever it dies."""
    environment = {**os.environ, "EFFECTS_DATABASE": database}
    command = (str(Path(sys.executable).with_name("fairlane")), "worker", "tests.staged.completing_app:app")
    while not ended.is_set():
        process = await asyncio.create_subprocess_exec(*command, "--server", url, env=environment)
        over = asyncio.create_task(ended.wait())
        died = asyncio.create_task(process.wait())
        await asyncio.wait([over, died], return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not died.done():
            process.terminate()
        await died


async def test_a_worker_sends_no_ack_for_what_its_handler_finished(
    database: Database, served: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    app, seen = App("quiet"), list[Any]()

    @app.handler("jobs", max_attempts=3)
    async def handle(data: int, context: Context) -> None:
        connection = await asyncpg.connect(database.role_url)
        try:
            async with connection.transaction():
                if data % 2:
                    await context.complete(connection)
                    await sql.enqueue(connection, "done", data)
                if data == 3 and context.attempt == 1:
                    raise ZeroDivisionError
        finally:
            await connection.close()
        seen.append(data)

    async with Client(served.url) as client:
        for n in range(6):
            await client.push("jobs", n)
        worker = Worker(app, served.url)
        running = asyncio.create_task(worker.run())
        found: list[int] = []
        while len(found) < 3:
            batch = await client.pop("done", batch=10, wait=30)
            found += [one.data for one in batch]
            await client.ack(batch)
        await drained(client, "jobs", "done")
        worker.stop()
        await running
    assert (seen, found) == ([0, 1, 2, 3, 4, 5], [1, 3, 5])
    assert not [record for record in caplog.records if "refused" in record.getMessage()]


async def test_a_handler_that_pushes_with_its_ack_cannot_complete(served: BrokerProcess) -> None:
    app, errors = App("mixed"), list[str]()

    @app.handler("jobs", max_attempts=1)
    async def handle(data: int, context: Context) -> None:
        context.push("other", 1)
        try:
            await context.complete(None)
        except Exception as error:
            errors.append(str(error))
            raise

    async with Client(served.url) as client:
        await client.push("jobs", 1)
        worker = Worker(app, served.url)
        running = asyncio.create_task(worker.run())
        await until(lambda: bool(errors))
        worker.stop()
        await running
    assert errors == ["push() and fan_in() need the ack of the worker; use enqueue() in the transaction of complete()"]
