"""What a worker logs when handlers fail: the names of what failed, no payload, no secret."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane import App, Client, Context
from tests.until import until
from tests.worker.conftest import Running

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
