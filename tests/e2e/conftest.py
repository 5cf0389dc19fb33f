"""Brokers as users run them, in processes of their own, on each kind of store."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import pytest

from tests.broker_process import BrokerProcess, broker_process
from tests.conftest import FreshDatabase
from tests.http.wire import Wire
from tests.postgres import PostgresServer

StartBroker = Callable[..., Awaitable[BrokerProcess]]


@pytest.fixture(params=["sqlite", "postgres18"])
def server(request: pytest.FixtureRequest) -> PostgresServer | None:
    """Not async: a server that starts here must not hold up the test's event loop."""
    return None if request.param == "sqlite" else request.getfixturevalue(request.param)


@pytest.fixture
async def store_url(server: PostgresServer | None, tmp_path: Path, fresh_database: FreshDatabase) -> str:
    return f"sqlite:///{tmp_path}/queue.db" if server is None else await fresh_database(server)


@pytest.fixture
async def database_url(postgres18: PostgresServer, fresh_database: FreshDatabase) -> str:
    return await fresh_database(postgres18)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that every user can reach, for a server that root starts as another user.

    Pytest's own directories are private.
    """
    with TemporaryDirectory(prefix="fairlane-e2e-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture
def start() -> Iterator[StartBroker]:
    """A function that starts brokers: `await start(store, "--workers", "2")`. Stops them at the end."""
    with ExitStack() as stack:

        async def begin(store: str, *arguments: str) -> BrokerProcess:
            return await to_thread(stack.enter_context, broker_process(store, *arguments))

        yield begin


@asynccontextmanager
async def connected(broker: BrokerProcess) -> AsyncIterator[Wire]:
    async with aiohttp.ClientSession() as session:
        yield Wire(None, session, broker.url)
