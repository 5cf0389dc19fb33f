"""What a gate takes a flood for before it has seen what keeping costs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlane.broker import Broker
from fairlane.engine import pace
from fairlane.engine.batchers import Batchers
from fairlane.engine.draft import PushRequest
from fairlane.engine.gate import KEEPING_COST
from fairlane.model.message import PushItem

COUNT = 300


async def test_keeping_is_taken_to_cost_more_than_executing_until_it_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "WINDOW_SECONDS", 0.0)  # the first flush says how fast they are
    async with Broker.open(f"sqlite:///{tmp_path}/queue.db") as broker:
        batchers: Batchers = broker.engine._batchers
        await broker.push("orders", 1)
        assert batchers.pushes.rate > 0
        assert broker.engine.load("push").enqueue_seconds == 0
        items = [PushItem(queue="orders", payload=b"1") for _ in range(COUNT)]
        keeping = asyncio.create_task(batchers.waiting_pushes.submit(PushRequest(broker.tenant, items)))
        await asyncio.sleep(0)
        expected = KEEPING_COST * COUNT / batchers.pushes.rate
        assert broker.engine.load("push").enqueue_seconds == pytest.approx(expected)
        await keeping
