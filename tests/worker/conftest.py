"""One broker for all tests of a test process, and workers of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from fairlane import App, Client
from fairlane.model.names import QUEUE_MODE
from fairlane.worker import Worker
from tests.broker_process import BrokerProcess, broker_process

Running = Callable[..., AbstractAsyncContextManager[Worker]]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(f"sqlite:///{tmp_path_factory.mktemp('broker')}/queue.db") as broker:
        yield broker


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that the test may stop, kill and start again."""
    with broker_process(f"sqlite:///{tmp_path}/queue.db") as broker:
        yield broker


@pytest.fixture
async def client(broker: BrokerProcess) -> AsyncIterator[Client]:
    async with Client(broker.url) as client:
        yield client


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of this test's own: all share the broker."""
    return str(request.node.name)


@pytest.fixture
def running(broker: BrokerProcess) -> Running:
    """`async with running(app):` a worker, stopped at the end of the block."""

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
    """Return when the group has finished all there is."""
    async with asyncio.timeout(60):
        while {one.name: one.total_lag for one in await client.groups.list(queue)}.get(group) != 0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
