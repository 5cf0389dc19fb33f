"""The messages that wrk counts are in the store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.meter import Meter
from bench.systems import running_broker
from bench.webhooks import flood, webhook_broker, write_webhooks
from bench.wrk import fan_out_load, measured, pop_load, pop_path, push_bodies, push_load
from fairlane.broker.broker import Broker
from tests.broker_process import broker_process

pytestmark = [
    pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk, which make test installs as root"),
    pytest.mark.may_block_loop,  # while a broker starts
]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db"


async def test_the_messages_that_wrk_counts_are_in_the_store_and_their_cost_is_measured(store: str) -> None:
    groups, bodies = ["g0", "g1", "g2"], push_bodies(10, 1, queue="fan")
    paths = [pop_path(10, queue="fan", group=name, more="&autoAck=true") for name in groups]
    with broker_process(store) as process:
        meter = Meter(running_broker(process, None), None)
        run = await measured(meter, push_load(process.url, push_bodies(10, 1), seconds=1, connections=2))
        popped = await pop_load(process.url, pop_path(10), seconds=10, connections=2)
        fanned = await fan_out_load(process.url, bodies, paths, seconds=1)
    async with Broker.open(store) as broker:
        lanes = await broker.groups.lanes("bench", "workers", limit=1000)
        fan = [sum(lane.committed for lane in await broker.groups.lanes("fan", name, limit=1000)) for name in groups]
    assert run.rate
    assert sum(lane.head for lane in lanes) > 0
    # wrk does not count answers that arrive after it has stopped.
    assert 0 < popped.messages <= sum(lane.committed for lane in lanes) <= popped.messages + 2 * 10
    assert all(fan), "each group got messages"
    assert 0 < fanned.messages <= sum(fan)
    assert run.broker_us
    assert run.written is not None
    assert run.written > 98, "the payload at least"
    assert run.broker_peak is not None
    assert run.broker_peak > 10_000_000
    assert (run.store_us, run.wal, run.flushes) == (None, None, None)


async def test_each_webhook_of_a_flood_is_delivered_with_its_latency(store: str, tmp_path: Path) -> None:
    write_webhooks(tmp_path / "webhooks")
    async with webhook_broker(store, tmp_path) as process:
        result, delivered = await flood(process.url, tmp_path / "webhooks", 500, connections=4)
    # While wrk stops, requests in flight are cut off, and each connection may send one more.
    assert 500 - 8 <= len(delivered) <= 500 + 4
    assert result.requests <= 500 + 4
    assert all(0 < seconds < 60 for seconds in delivered)
