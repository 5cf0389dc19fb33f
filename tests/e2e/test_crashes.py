"""Answered calls survive kill -9, and a graceful stop keeps no client waiting."""

from __future__ import annotations

import asyncio
import time
from asyncio import to_thread

import pytest

from tests.broker_process import BrokerProcess
from tests.e2e.conftest import StartBroker, connected
from tests.e2e.load import Load, whole_log
from tests.until import until

PARTITIONS = ("a", "b", "c", "d")
KILLS = 2
pytestmark = pytest.mark.timeout(100)


async def test_a_broker_killed_under_load_loses_nothing_that_it_answered(start: StartBroker, store_url: str) -> None:
    broker = await start(store_url)
    async with connected(broker) as wire:
        await wire.configure("work", retryLimit=100)
        load = Load(wire, "work")
        async with asyncio.timeout(80), asyncio.TaskGroup() as tasks:
            for partition in PARTITIONS:
                tasks.create_task(load.produce(partition))
            for _ in range(3):
                tasks.create_task(load.consume())
            for _ in range(KILLS):
                before = sum(load.answered.values()), sum(load.acked.values())
                await until(lambda before=before: _went_on(load, before))  # type: ignore[misc]
                await to_thread(broker.kill)
                await to_thread(broker.start)
            load.enough = True
        assert load.mistakes == []
        found = await whole_log(wire, "work")
    for partition in PARTITIONS:
        stored = found[partition]
        assert stored == list(range(len(stored))), "each once, in order"
        # The last push of each producer may have been stored without an answer.
        assert load.answered[partition] <= len(stored)


def _went_on(load: Load, before: tuple[int, int]) -> bool:
    """Return True once many messages were pushed and acked since."""
    return sum(load.answered.values()) > before[0] + 60 and sum(load.acked.values()) > before[1] + 20


async def test_a_broker_told_to_stop_under_load_answers_everybody_in_time(start: StartBroker, store_url: str) -> None:
    await _stop_under_load(await start(store_url))


async def test_workers_told_to_stop_under_load_answer_everybody_in_time(start: StartBroker, database_url: str) -> None:
    await _stop_under_load(await start(database_url, "--workers", "2"))


async def _stop_under_load(broker: BrokerProcess) -> None:
    async with connected(broker) as wire:
        load = Load(wire, "work")
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            polls = [tasks.create_task(wire.get("/api/v1/pop/queue", "none", wait="true")) for _ in range(4)]
            for partition in PARTITIONS:
                tasks.create_task(load.produce(partition))
            await until(lambda: sum(load.answered.values()) > 60)
            began = time.monotonic()
            assert await to_thread(broker.stop) == 0
            assert time.monotonic() - began < 10
            load.enough = True
        assert [poll.result().status for poll in polls] == [204] * 4
        await to_thread(broker.start)
        found = await whole_log(wire, "work")
    for partition in PARTITIONS:
        assert found[partition][: load.answered[partition]] == list(range(load.answered[partition]))
