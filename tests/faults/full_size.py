"""`make faults`: the outages of test_outages at their full size, which takes minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.broker import Broker
from tests.conftest import FreshDatabase
from tests.faults.outages import crashed, frozen
from tests.faults.producers import Producers, check, drained, stored
from tests.postgres import PostgresServer, running_server

PRODUCERS = 64
FROZEN_SECONDS, STOPPED_SECONDS = 10, 20

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server(18) as server:
        yield server


@pytest.mark.parametrize("given_ids", [False, True], ids=["minted", "given"])
async def test_a_store_frozen_for_long_under_many_producers_loses_doubles_and_reorders_nothing(
    server: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path, given_ids: bool
) -> None:
    url = await fresh_database(server)
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        producers = Producers(broker, count=PRODUCERS, given_ids=given_ids)
        await asyncio.sleep(2)
        with frozen(server):
            await asyncio.sleep(FROZEN_SECONDS)
        await asyncio.sleep(2)
        await producers.stop()
        await drained(broker, seconds=120)
        assert producers.errors == []
        assert producers.statuses["queued"] > 0
        assert producers.statuses["buffered"] > 0
    check(producers, await stored(url))


async def test_a_store_stopped_for_long_under_many_producers_loses_doubles_and_reorders_nothing(
    server: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    url = await fresh_database(server)
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        producers = Producers(broker, count=PRODUCERS, given_ids=True)
        await asyncio.sleep(2)
        async with crashed(server):
            await asyncio.sleep(STOPPED_SECONDS)
        await asyncio.sleep(2)
        await producers.stop()
        await drained(broker, seconds=120)
        assert producers.errors == []
        assert producers.statuses["buffered"] > 0
    check(producers, await stored(url))
