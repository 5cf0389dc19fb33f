"""A proxy that misbehaves in front of the shared broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.broker_process import BrokerProcess
from tests.client.rogue import Rogue
from tests.shared_broker import broker, client, own_broker, queue

__all__ = ["broker", "client", "own_broker", "queue", "rogue"]


@pytest.fixture
async def rogue(broker: BrokerProcess) -> AsyncIterator[Rogue]:
    """A proxy in front of the broker that forwards requests unless a test sets another reaction."""
    async with Rogue(broker.url) as rogue:
        yield rogue
