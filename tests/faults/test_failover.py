"""A database fails over under a client with default settings: no error, nothing lost, duplicated or reordered."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Client, Message
from tests.broker_process import BrokerProcess
from tests.faults.outages import _signal, promote, standby_of
from tests.faults.producers import QUEUE, stored
from tests.postgres import PostgresServer, running_server

LANES = [f"p{number}" for number in range(6)]
SECONDS_MAX = 120


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with running_server(16) as server:
        yield server


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    with standby_of(primary) as server:
        yield server


@pytest.fixture(params=[1, 3])
def brokers(
    request: pytest.FixtureRequest, primary: PostgresServer, standby: PostgresServer, tmp_path: Path
) -> Iterator[list[BrokerProcess]]:
    url = f"{primary.url()},{standby.directory}&target_session_attrs=read-write"
    with contextlib.ExitStack() as stack:
        started = []
        for number in range(request.param):
            broker = BrokerProcess(url, data_dir=tmp_path / str(number))
            broker.start()
            stack.callback(broker.stop)
            started.append(broker)
        yield started


class Traffic:
    """Producers that await each push, and consumers, all through one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopping = False
        self.accepted: dict[str, list[int]] = defaultdict(list)
        self.delivered: dict[str, list[int]] = defaultdict(list)
        self.journalled: Counter[str] = Counter()
        self.stored_last: set[str] = set()
        """Lanes whose latest push was stored immediately."""
        self._changed = asyncio.Condition()

    async def produce(self, lane: str) -> None:
        number = 0
        while not self._stopping:
            outcome = await self._client.push(QUEUE, number, partition=lane)
            self.accepted[lane].append(number)
            self.journalled[lane] += outcome.durability == "journal"
            (self.stored_last.add if outcome.status == "queued" else self.stored_last.discard)(lane)
            number += 1
            await self._tell()
            await asyncio.sleep(0.01)

    async def consume(self, queue: str) -> None:
        await self._client.consume(queue, self._deliver, batch=10, partitions=3, lease_seconds=10)

    async def _deliver(self, message: Message[int]) -> None:
        self.delivered[message.partition].append(message.data)
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, wanted: object) -> None:
        assert callable(wanted)
        async with asyncio.timeout(SECONDS_MAX), self._changed:
            await self._changed.wait_for(wanted)

    def stop(self) -> None:
        self._stopping = True


def lanes_pushed_to(data_dir: Path) -> set[str]:
    """Return the partitions with pushes in the journal of a broker. An ack may wait in another one."""
    found = set()
    for path in (data_dir / "journal").glob("journal-*.db"):
        with contextlib.closing(sqlite3.connect(path)) as db:
            found |= {lane for (lane,) in db.execute("SELECT DISTINCT partition FROM entries WHERE kind = 'push'")}
    return found


async def test_a_failover_leaves_every_lane_in_order(
    primary: PostgresServer, standby: PostgresServer, brokers: list[BrokerProcess], tmp_path: Path
) -> None:
    async with Client([broker.url for broker in brokers]) as client:
        traffic = Traffic(client)
        producers = [asyncio.create_task(traffic.produce(lane)) for lane in LANES]
        # Consumers of empty queues are answered by other brokers than the producers of the lanes.
        queues = [QUEUE, QUEUE, *(f"empty-{number}" for number in range(4))]
        consumers = [asyncio.create_task(traffic.consume(queue)) for queue in queues]
        await traffic.until(lambda: min(len(traffic.delivered[lane]) for lane in LANES) >= 5)
        _signal(primary, signal.SIGKILL)
        await traffic.until(lambda: min(traffic.journalled[lane] for lane in LANES) >= 500)
        journals = Counter(lane for number in range(len(brokers)) for lane in lanes_pushed_to(tmp_path / str(number)))
        assert journals == dict.fromkeys(LANES, 1), "a lane in two journals has no order"
        await promote(standby)
        traffic.stored_last.clear()
        await traffic.until(lambda: traffic.stored_last.issuperset(LANES))
        traffic.stop()
        await asyncio.gather(*producers)
        await traffic.until(lambda: all(set(traffic.accepted[lane]) <= set(traffic.delivered[lane]) for lane in LANES))
        assert not any(consumer.done() for consumer in consumers), "the outage ended no consumer"
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
    assert await stored(standby.url()) == traffic.accepted
    # A lease whose pop or ack fell into the failover ends, and its messages come again: after their first time.
    assert {lane: list(dict.fromkeys(some)) for lane, some in traffic.delivered.items()} == traffic.accepted
