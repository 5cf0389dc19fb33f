"""One broker for all tests of a worker process, and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlane import Client
from tests.broker_process import BrokerProcess, broker_process
from tests.client.rogue import Rogue


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
async def rogue(broker: BrokerProcess) -> AsyncIterator[Rogue]:
    """In front of the broker; does what it is told to, and otherwise forwards."""
    async with Rogue(broker.url) as rogue:
        yield rogue


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of this test's own: all share the broker."""
    return str(request.node.name)
