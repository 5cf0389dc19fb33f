"""Several broker processes on one port."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio import to_thread
from collections.abc import Callable

import aiohttp
import pytest

from tests.broker_process import BrokerProcess
from tests.e2e.conftest import StartBroker, connected
from tests.metrics import sample, samples

pytestmark = pytest.mark.timeout(180)


async def pids(broker: BrokerProcess, enough: Callable[[set[int]], bool]) -> set[int]:
    """Return the ids of the processes that answer, each over a connection of its own."""
    found: set[int] = set()
    async with asyncio.timeout(50), aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        while not enough(found):
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(worker_id(session, broker)) for _ in range(8)]
            found |= {task.result() for task in asked}
    return found


async def worker_id(session: aiohttp.ClientSession, broker: BrokerProcess) -> int:
    async with session.get(f"{broker.url}/health") as response:
        found: int = (await response.json())["worker_id"]
        return found


async def nobody_listens(url: str) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_workers_share_the_port_and_one_that_dies_is_replaced(start: StartBroker, database_url: str) -> None:
    broker = await start(database_url, "--workers", "2")
    assert sum(" on http://" in line for line in broker.log) == 1
    first = await pids(broker, lambda found: len(found) == 2)
    assert broker.pid not in first
    killed = min(first)
    async with connected(broker) as wire:
        await wire.push("q", *range(10), partition="a")
        os.kill(killed, signal.SIGKILL)
        second = await pids(broker, lambda found: len(found - {killed}) == 2)
        assert len(second - first) == 1
        assert first - {killed} <= second, "the other one was left alone"
    async with connected(broker) as wire:  # its connections may have been the dead one's
        await wire.push("q", *range(10, 20), partition="a")
        messages = await wire.pop("q")
        assert [message["data"] for message in messages] == list(range(20))
        assert all(one["success"] for one in await wire.ack(messages))
    assert await to_thread(broker.stop) == 0
    assert sum("exited with code -9; restarting it" in line for line in broker.log) == 1


async def test_workers_whose_parent_is_killed_end_by_themselves(start: StartBroker, database_url: str) -> None:
    broker = await start(database_url, "--workers", "2")
    await pids(broker, lambda found: len(found) == 2)
    await to_thread(broker.kill)  # waits until nothing more is written to its log
    assert await nobody_listens(broker.url)


async def test_one_scrape_shows_all_workers_and_says_whose_is_what(start: StartBroker, database_url: str) -> None:
    broker = await start(database_url, "--workers", "2")
    await pids(broker, lambda found: len(found) == 2)
    pushed = 0
    async with asyncio.timeout(50), aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        while True:  # until both of them answered a push
            items = {"items": [{"queue": "q", "payload": 1}]}
            async with session.post(f"{broker.url}/api/v1/push", json=items) as answer:
                assert answer.status in (201, 202)
            pushed += 1
            async with session.get(f"{broker.url}/metrics") as answer:
                found = samples(await answer.text())
            both = [sample("requests_total", verb="push", worker=worker) for worker in "01"]
            counts = [found[one] for one in both]
            assert sum(counts) == pushed
            if all(counts):
                break
    for worker in "01":
        assert found[sample("process_up", worker=worker)] == 1
        assert found["process_start_time_seconds", frozenset({("worker", worker)})] > 0
        assert sample("store_connections", worker=worker, state="idle") in found
    assert {sample("store_up"), sample("journal_messages"), sample("operations", state="waiting")} <= set(found)
    assert found[sample("queue_partitions", queue="q")] == 1
