"""Fixtures for tests that share one broker, imported by the conftest of their directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlane import Client
from tests.broker_process import BrokerProcess, broker_process


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for all tests of a directory that run in this process."""
    with broker_process(f"sqlite:///{tmp_path_factory.mktemp('broker')}/queue.db") as broker:
        yield broker


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that the test may stop, kill and start again."""
    with broker_process(f"sqlite:///{tmp_path}/queue.db") as broker:
        yield broker


@pytest.fixture
async def client(broker: BrokerProcess) -> AsyncIterator[Client]:
    async with Client(broker.url) as client:
        yield client


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """Return the name of a queue that no other test uses."""
    return str(request.node.name)
