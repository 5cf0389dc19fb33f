"""Workers of the shared broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from fairlane import App, Client
from fairlane.model.names import QUEUE_MODE
from fairlane.worker import Worker
from tests.broker_process import BrokerProcess
from tests.shared_broker import broker, client, own_broker, queue

__all__ = ["broker", "client", "own_broker", "queue", "running", "until_drained"]

Running = Callable[..., AbstractAsyncContextManager[Worker]]


@pytest.fixture
def running(broker: BrokerProcess) -> Running:
    """Run a worker of this app until the end of the block."""

    @contextlib.asynccontextmanager
    async def run(app: App, **options: Any) -> AsyncIterator[Worker]:
        worker = Worker(app, options.pop("server", broker.url), **options)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            async with asyncio.timeout(30):
                await task

    return run


async def until_drained(client: Client, queue: str, *, group: str = QUEUE_MODE) -> None:
    """Wait until the group has finished all messages."""
    async with asyncio.timeout(60):
        while {one.name: one.total_lag for one in await client.groups.all(queue)}.get(group) != 0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
