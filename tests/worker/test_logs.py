"""The log of a worker whose handlers fail: the name of what failed, no payload, no secret."""

from __future__ import annotations

import asyncio
import enum
import logging
from typing import Any

import pytest

from fairlane import App, Client, Context, Dead
from tests.until import until
from tests.worker.conftest import Running, until_drained

MARKER = "marker-payload-5d1f"
SECRET = "marker-secret-9a7c"


async def test_a_worker_names_what_failed_and_not_what_was_in_it(
    client: Client, queue: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("shop")
    done = asyncio.Event()

    @app.handler(queue, type="typed")
    async def typed(data: int) -> None: ...

    @app.handler(queue)
    async def fail(data: dict[str, Any], ctx: Context) -> None:
        done.set()
        raise ValueError("it fell")

    await client.queues.configure(queue, retry_limit=0)
    await client.push(queue, MARKER, type="typed", partition="a")
    await client.push(queue, {"card": MARKER}, headers={"authorization": SECRET}, partition="b")
    async with running(app):
        await done.wait()
        await until(lambda: "handler failed" in caplog.text)
    assert MARKER not in caplog.text
    assert SECRET not in caplog.text
    [record] = [one for one in caplog.records if "handler failed" in one.getMessage()]
    assert isinstance(record.args, dict)
    assert (record.args["queue"], record.args["partition"], record.args["attempt"]) == (queue, "b", 1)
    assert record.args["lease"]


class Colour(enum.Enum):
    RED = "red"


async def test_a_worker_logs_every_message_that_it_dead_letters(
    client: Client, queue: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("shop")

    @app.handler(queue, type="number")
    async def take(data: int) -> None: ...

    @app.handler(queue, type="colour")
    async def paint(data: Colour) -> None: ...

    @app.handler(queue, type="refused")
    async def refuse(data: int) -> Dead:
        return Dead("there is no such customer")

    @app.handler(queue, type="failing", max_attempts=1)
    async def fail(data: int) -> None:
        raise ValueError("it fell")

    @app.batch(f"{queue}.batch")
    async def many(data: list[int]) -> None: ...

    pushed = {"number": MARKER, "colour": MARKER, "refused": 1, "failing": 1, "unknown": MARKER}
    for kind, data in pushed.items():
        await client.push(queue, data, type=kind, partition=kind)
    await client.push(f"{queue}.batch", MARKER, partition="batch")
    async with running(app):
        await until_drained(client, queue)
        await until_drained(client, f"{queue}.batch")
    told = [one for one in caplog.records if "is a dead letter" in one.getMessage()]
    letters = [*await client.dead_letters.page(queue), *await client.dead_letters.page(f"{queue}.batch")]
    fields = {one.args["partition"]: one.args for one in told if isinstance(one.args, dict)}
    assert {one.partition: str(one.message_id) for one in letters} == {
        partition: str(args["message_id"]) for partition, args in fields.items()
    }
    reasons = {partition: str(args["error"]) for partition, args in fields.items()}
    assert reasons["refused"] == "there is no such customer"
    assert reasons["failing"] == "ValueError: it fell"
    assert "'unknown'" in reasons["unknown"]
    for partition, handler in (("number", take), ("colour", paint), ("batch", many)):
        assert f"does not fit {handler.__qualname__}" in reasons[partition]
    assert MARKER not in caplog.text


async def test_a_worker_logs_its_handlers_when_it_starts(
    client: Client, queue: str, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("shop")

    @app.handler(queue, type="paid", group="billing", concurrency=3)
    async def bill(data: int) -> None: ...

    @app.batch(f"{queue}.batch", size=50)
    async def many(data: list[int]) -> None: ...

    with caplog.at_level(logging.INFO, logger="fairlane.worker"):
        async with running(app) as worker:
            await until(lambda: worker.ready)
    told = [one.getMessage() for one in caplog.records if one.getMessage().startswith("handling queue")]
    assert told == [
        f"handling queue {queue!r} with {bill.__qualname__}: type 'paid', group 'billing', 3 at once",
        f"handling queue {queue + '.batch'!r} with {many.__qualname__}: batches of up to 50, 1 at once",
    ]
