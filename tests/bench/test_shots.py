"""What wrk is told to do over HTTP comes out in the store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.hooks import flood, hooked, written
from bench.meter import Meter
from bench.shots import fan_shot, measured, pop_path, pop_shot, push_bodies, push_shot
from bench.systems import running_broker
from fairlane.broker.broker import Broker
from tests.broker_process import broker_process

pytestmark = [
    pytest.mark.skipif(shutil.which("wrk") is None, reason="needs wrk, which make test installs as root"),
    pytest.mark.may_block_loop,  # while a broker starts
]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db"


async def test_what_wrk_counts_is_in_the_store_and_is_told_with_what_the_broker_used(store: str) -> None:
    groups, bodies = ["g0", "g1", "g2"], push_bodies(10, 1, queue="fan")
    paths = [pop_path(10, queue="fan", group=name, more="&autoAck=true") for name in groups]
    with broker_process(store) as process:
        meter = Meter(running_broker(process, None), None)
        run = await measured(meter, push_shot(process.url, push_bodies(10, 1), seconds=1, connections=2))
        popped = await pop_shot(process.url, pop_path(10), seconds=10, connections=2)
        fanned = await fan_shot(process.url, bodies, paths, seconds=1)
    async with Broker.open(store) as broker:
        lanes = await broker.groups.lanes("bench", "workers", limit=1000)
        fan = [sum(lane.committed for lane in await broker.groups.lanes("fan", name, limit=1000)) for name in groups]
    assert run.rate
    assert sum(lane.head for lane in lanes) > 0
    # An answer that came when wrk had stopped already is not counted.
    assert 0 < popped.messages <= sum(lane.committed for lane in lanes) <= popped.messages + 2 * 10
    assert all(fan), "each group got messages"
    assert 0 < fanned.messages <= sum(fan)
    assert run.broker_us
    assert run.written is not None
    assert run.written > 98, "the payload at least"
    assert run.broker_peak is not None
    assert run.broker_peak > 10_000_000
    assert (run.store_us, run.wal, run.flushes) == (None, None, None)


async def test_each_webhook_of_a_flood_is_a_message_with_its_time(store: str, tmp_path: Path) -> None:
    _, hooks = written(tmp_path)
    async with hooked(store, tmp_path) as process:
        shot, seen = await flood(process.url, hooks, 500, connections=4)
    assert 500 - 8 <= len(seen) <= 500
    assert shot.requests <= 500
    assert all(0 < seconds < 60 for seconds in seen)
