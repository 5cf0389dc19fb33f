"""`fairlane status` and `top` during an outage of the store: they show what the broker knows, and never hang."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator

import pytest

from tests.broker_process import FAIRLANE, BrokerProcess, broker_process
from tests.conftest import FreshDatabase
from tests.faults.outages import crashed, frozen
from tests.postgres import PostgresServer

pytestmark = pytest.mark.may_block_loop  # they start brokers
UNKNOWN = {"queues", "messages", "dead"}


@pytest.fixture
async def broker(server: PostgresServer, fresh_database: FreshDatabase) -> AsyncIterator[BrokerProcess]:
    with broker_process(await fresh_database(server)) as broker:
        yield broker


async def command(broker: BrokerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    words = (str(FAIRLANE), *words, "--server", broker.url)
    return await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=120)


def facts(text: str) -> dict[str, str]:
    return {line[:10].strip(): line[10:] for line in text.partition("\n\n")[0].splitlines()}


async def told(broker: BrokerProcess) -> None:
    """Assert that `status` reports the outage, together with everything the broker knows without its store."""
    shown = await command(broker, "status")
    assert (shown.returncode, shown.stderr) == (1, "")
    known = facts(shown.stdout)
    assert known["broker"].startswith("fairlane ")
    assert known["store"] == "postgresql, disconnected"
    assert known["journal"].startswith("1 entries, 1 messages")
    assert {name for name, text in known.items() if text == "unknown"} == UNKNOWN
    assert "!! The store is away for " in shown.stdout
    printed = json.loads((await command(broker, "status", "--json")).stdout)
    assert (printed["health"]["status"], printed["overview"]) == ("unhealthy", None)
    assert printed["findings"][0]["kind"] == "store_away"
    port = broker.url.rpartition(":")[2]
    shown = await asyncio.to_thread(
        subprocess.run, (str(FAIRLANE), "doctor", "--port", port), capture_output=True, text=True, timeout=120
    )
    [line] = [line for line in shown.stdout.splitlines() if line[4:].startswith("port ")]
    assert line.startswith("no  "), shown
    assert "runs there, and its store is unavailable: " in line
    once = await command(broker, "top")
    assert (once.returncode, once.stdout) == (75, "")
    assert "store" in once.stderr, once.stderr
    assert "without a reason" not in once.stderr


async def journalled(broker: BrokerProcess) -> None:
    pushed = await command(broker, "push", "orders", "1")
    assert (pushed.returncode, pushed.stderr[:6]) == (0, "queued"), pushed


async def test_status_tells_of_a_store_that_crashed(broker: BrokerProcess, server: PostgresServer) -> None:
    assert (await command(broker, "push", "orders", "0")).returncode == 0
    assert (await command(broker, "status")).returncode == 0
    async with crashed(server):
        await journalled(broker)
        await told(broker)


async def test_status_tells_of_a_store_that_is_frozen(broker: BrokerProcess, server: PostgresServer) -> None:
    assert (await command(broker, "push", "orders", "0")).returncode == 0
    with frozen(server):
        await journalled(broker)
        await told(broker)
