"""`make faults-full`: the outages of test_outages at their full size, which takes minutes."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from fairlane.broker.broker import Broker
from tests.broker_process import broker_process
from tests.conftest import FreshDatabase
from tests.faults.closed_loop import ClosedLoop
from tests.faults.outages import crashed, frozen
from tests.faults.producers import Producers, check, drained, stored
from tests.http.webhook_flood import SECRET, run_flood
from tests.postgres import PostgresServer

PRODUCERS = 64
FROZEN_SECONDS, STOPPED_SECONDS = 10, 20

pytestmark = pytest.mark.timeout(300)


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


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
async def test_producers_that_wait_for_their_answers_are_never_refused_however_many_they_are(
    server: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path, store: str
) -> None:
    """200 producers push as fast as they are answered, for 20 s: more than three times the load of a few producers."""
    url = f"sqlite:///{tmp_path}/queue.db" if store == "sqlite" else await fresh_database(server)
    with contextlib.ExitStack() as stack:
        broker = await asyncio.to_thread(stack.enter_context, broker_process(url))
        loop = ClosedLoop(broker.url, producers=200, partitions_each=20, each=5)
        await loop.run(seconds=20)
        assert set(loop.answers) <= {201, 202}
        await asyncio.to_thread(stack.close)


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
async def test_ten_thousand_webhooks_are_processed_once_each_and_in_order_by_incident(
    server: PostgresServer,
    fresh_database: FreshDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    store: str,
) -> None:
    monkeypatch.setenv("FLOOD_SECRET", SECRET)
    url = f"sqlite:///{tmp_path}/queue.db" if store == "sqlite" else await fresh_database(server)
    with contextlib.ExitStack() as stack:
        broker = await asyncio.to_thread(stack.enter_context, broker_process(url))
        flood = await run_flood(broker.url, "Full", count=10_000)
        await asyncio.to_thread(stack.close)
    flood.check()
    with capsys.disabled():
        rate, p99 = flood.count / flood.seconds, flood.visible_p99_ms()
        sys.stdout.write(f"\n{store}: {rate:.0f} webhooks a second, visible after {p99:.0f} ms (p99)\n")
