"""Real broker processes and their journals: started without a database, killed, and with pushes paused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.broker_process import BrokerProcess
from tests.conftest import FreshDatabase
from tests.faults.outages import _children, crashed, revive
from tests.faults.producers import QUEUE, stored
from tests.metrics import sample, samples
from tests.postgres import PostgresServer, running_server

SECONDS_MAX = 60


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_server(16) as server:
        yield server


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def push(http: aiohttp.ClientSession, broker: BrokerProcess, number: int, partition: str = "a") -> Any:
    item = {"queue": QUEUE, "partition": partition, "payload": number}
    async with http.post(f"{broker.url}/api/v1/push", json={"items": [item]}) as answer:
        [element] = await answer.json()
        return answer.status, element


async def get(http: aiohttp.ClientSession, broker: BrokerProcess, path: str) -> Any:
    async with http.get(broker.url + path) as answer:
        return answer.status, await answer.json() if answer.status != 204 else None


async def until_answers(http: aiohttp.ClientSession, broker: BrokerProcess, path: str, wanted: Any) -> None:
    """Wait until `wanted(status, answer)` is true."""
    async with asyncio.timeout(SECONDS_MAX):
        while not wanted(*await get(http, broker, path)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def until_stored(url: str, expected: dict[str, list[int]]) -> None:
    """Wait until a push is stored. At a busy store it is an operation first."""
    give_up_at = time.monotonic() + SECONDS_MAX
    while (found := await stored(url)) != expected and time.monotonic() < give_up_at:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    assert found == expected


async def test_a_broker_killed_with_a_full_journal_applies_it_when_it_is_back(
    server: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    """The broker starts without its database and is killed in between, and loses no message."""
    url = await fresh_database(server)
    broker = BrokerProcess(url, data_dir=tmp_path)
    operations = []
    async with crashed(server):
        await asyncio.to_thread(broker.start)
        assert (await get(http, broker, "/livez"))[0] == 200
        status, ready = await get(http, broker, "/readyz")
        assert (status, ready["database"]) == (503, "disconnected")
        for number in range(20):
            status, element = await push(http, broker, number)
            assert (status, element["status"], element["durability"]) == (202, "buffered", "journal")
            operations.append(element["operationId"])
        assert (await get(http, broker, f"/api/v1/pop/queue/{QUEUE}"))[0] == 503
        status, listed = await get(http, broker, "/api/v1/operations?status=pending&limit=15")
        assert (status, listed["complete"]) == (200, False)
        assert [one["id"] for one in listed["operations"]] == operations[:15]
        async with http.get(f"{broker.url}/metrics") as answer:
            assert answer.status == 200
            metrics = samples(await answer.text())
        assert (metrics[sample("store_up")], metrics[sample("journal_messages")]) == (0, 20)
        assert "fairlane_queue_messages" not in {name for name, _ in metrics}, "only the store knows"
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        status, buffers = await get(http, broker, "/api/v1/status/buffers")
        assert (status, buffers["pending"], buffers["journal"]["storeUp"]) == (200, 20, False)
        status, waiting = await get(http, broker, f"/api/v1/operations/{operations[0]}")
        assert (status, waiting["status"], waiting["durability"]) == (200, "pending", "journal")
        for number in range(20, 30):
            assert (await push(http, broker, number))[0] == 202
    try:
        await until_answers(http, broker, "/readyz", lambda status, answer: status == 200)
        await until_answers(http, broker, "/api/v1/status/buffers", lambda _, answer: answer["pending"] == 0)
        assert (await push(http, broker, 30))[0] in (201, 202)
        await until_answers(http, broker, "/api/v1/status/buffers", lambda _, answer: answer["pending"] == 0)
        async with http.get(f"{broker.url}/metrics") as answer:
            metrics = samples(await answer.text())
        assert (metrics[sample("store_up")], metrics[sample("journal_messages")]) == (1, 0)
        await until_stored(url, {"a": list(range(31))})
        for id in operations:
            status, ended = await get(http, broker, f"/api/v1/operations/{id}")
            assert (status, ended["status"], ended["durability"]) == (200, "completed", "store")
    finally:
        await asyncio.to_thread(broker.stop)


async def test_a_broker_killed_while_it_drains_stores_nothing_twice(
    server: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    url = await fresh_database(server)
    broker = BrokerProcess(url, data_dir=tmp_path)
    await asyncio.to_thread(broker.start)
    expected: dict[str, list[int]] = {}
    await asyncio.to_thread(server.stop, signal.SIGQUIT)
    for number in range(200):
        partition = f"p{number % 4}"
        assert (await push(http, broker, number, partition))[0] == 202
        expected.setdefault(partition, []).append(number)
    await revive(server)
    for pause in (0.05, 0.1, 0.2):
        await asyncio.sleep(pause)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
    try:
        await until_answers(http, broker, "/api/v1/status/buffers", lambda _, answer: answer["pending"] == 0)
        await until_stored(url, expected)
    finally:
        await asyncio.to_thread(broker.stop)


async def push_on_a_connection(broker: BrokerProcess, partition: str, numbers: range) -> None:
    """Push messages one after another: a connection belongs to one worker process."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
        for number in numbers:
            status, element = await push(session, broker, number, partition)
            assert (status, element["durability"]) == (202, "journal")


def entries_by_file(data_dir: Path) -> list[int]:
    counts = []
    for path in sorted((data_dir / "journal").glob("journal-*.db")):
        with contextlib.closing(sqlite3.connect(path)) as db:
            counts.append(db.execute("SELECT count(*) FROM entries").fetchone()[0])
    return counts


async def test_what_killed_workers_left_is_drained_by_fewer_of_them(
    server: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    """Workers hand their entries to the one that owns the journal, which keeps the order over all connections.

    A single worker that starts later continues with that journal.
    """
    url = await fresh_database(server)
    broker = BrokerProcess(url, "--workers", "3", data_dir=tmp_path)
    async with crashed(server):
        await asyncio.to_thread(broker.start)
        async with asyncio.timeout(SECONDS_MAX):
            for connection in range(12):
                await push_on_a_connection(broker, "all", range(5 * connection, 5 * connection + 5))
        assert [count for count in entries_by_file(tmp_path) if count] == [60]
        workers = _children(broker.pid)
        assert len(workers) == 3
        for pid in (broker.pid, *workers):
            os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(broker.kill)
    alone = BrokerProcess(url, data_dir=tmp_path)
    await asyncio.to_thread(alone.start)
    try:
        await until_stored(url, {"all": list(range(60))})
        await until_answers(http, alone, "/api/v1/status/buffers", lambda _, answer: answer["pending"] == 0)
        assert sum(entries_by_file(tmp_path)) == 0
    finally:
        await asyncio.to_thread(alone.stop)


async def test_paused_pushes_stay_in_the_journal_and_are_stored_afterwards(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    broker = BrokerProcess(f"sqlite:///{tmp_path}/queue.db", data_dir=tmp_path / "data")
    await asyncio.to_thread(broker.start)
    path = f"{broker.url}/api/v1/pauses"
    try:
        assert (await push(http, broker, 0))[0] == 201
        async with http.post(path, json={"pushes": True}) as answer:
            assert (answer.status, (await answer.json())["pushes"]) == (200, True)
        for number in range(1, 6):
            status, element = await push(http, broker, number)
            assert (status, element["status"], element["reason"]) == (202, "buffered", "maintenance")
        assert (await get(http, broker, "/api/v1/status/buffers"))[1]["journal"]["messages"] == 5
        _, popped = await get(http, broker, f"/api/v1/pop/queue/{QUEUE}?batch=10&autoAck=true")
        assert [message["data"] for message in popped["messages"]] == [0]
        await asyncio.sleep(1.2)
        assert (await get(http, broker, f"/api/v1/pop/queue/{QUEUE}?batch=10&autoAck=true"))[0] == 204
        async with http.post(path, json={"pushes": False}) as answer:
            assert (await answer.json())["pushes"] is False
        await until_answers(
            http, broker, "/api/v1/status/buffers", lambda _, answer: answer["journal"]["messages"] == 0
        )
        _, popped = await get(http, broker, f"/api/v1/pop/queue/{QUEUE}?batch=10&autoAck=true")
        assert [message["data"] for message in popped["messages"]] == [1, 2, 3, 4, 5]
        assert (await push(http, broker, 6))[1].get("reason") != "maintenance"
    finally:
        await asyncio.to_thread(broker.stop)
