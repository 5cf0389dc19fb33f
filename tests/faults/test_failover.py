"""A database fails over under a client with default settings: no error, nothing lost, duplicated or reordered."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Client
from fairlane.broker.broker import Broker
from fairlane.errors import Unavailable
from tests.broker_process import BrokerProcess
from tests.faults.outages import _signal, promote, standby_of
from tests.faults.producers import QUEUE, stored
from tests.faults.traffic import LANES, Traffic
from tests.postgres import PostgresServer, running_server
from tests.until import until


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


async def test_an_asynchronous_standby_loses_the_latest_commits_and_the_rest_goes_on(
    primary: PostgresServer, standby: PostgresServer
) -> None:
    """The pushes and acks that it did not get are gone: such messages are missing, or are delivered again."""
    async with primary.connect() as admin:
        await admin.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        await admin.execute("SELECT pg_reload_conf()")
        await until(lambda: admin.fetchval("SELECT current_setting('synchronous_standby_names') = ''"))
    url = f"{primary.url()},{standby.directory}&target_session_attrs=read-write"
    async with Broker.open(url, retention_interval=0) as broker:
        for number in range(4):
            await broker.push("orders", number, transaction_id=f"order {number}")
        await broker.ack(await broker.pop("orders"))
        async with primary.connect() as here, standby.connect() as there:
            end = await here.fetchval("SELECT pg_current_wal_lsn()")
            await until(lambda: there.fetchval("SELECT pg_last_wal_replay_lsn() >= $1", end))
            await there.execute("ALTER SYSTEM SET primary_conninfo = ''")
            await there.execute("SELECT pg_reload_conf()")
            await until(lambda: there.fetchval("SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)"))
        for number in (4, 5):
            assert (await broker.push("orders", number, transaction_id=f"order {number}")).status == "queued"
        await broker.ack(await broker.pop("orders", batch=2))
        _signal(primary, signal.SIGKILL)
        await promote(standby)

        async def pushed() -> bool:
            with contextlib.suppress(Unavailable):
                return (await broker.push("orders", 5, transaction_id="order 5")).status == "queued"
            return False

        await until(pushed)
        got: list[int] = []

        async def delivered() -> bool:
            with contextlib.suppress(Unavailable):
                batch = await broker.pop("orders", batch=10)
                outcomes = await broker.ack(batch) if batch else []
                got.extend(one.data for one, acked in zip(batch, outcomes, strict=True) if acked.success)
            return 5 in got

        await until(delivered)
        assert got == [1, 2, 3, 5], "order 4 is lost, and orders 1 and 2 are delivered again"


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
        # Consumers of empty queues are answered by other brokers than the producers of the lanes.
        traffic = Traffic(client, consumed=[QUEUE, QUEUE, *(f"empty-{number}" for number in range(4))])
        await traffic.progress()
        _signal(primary, signal.SIGKILL)
        await traffic.until(lambda: min(traffic.journalled[lane] for lane in LANES) >= 500)
        journals = Counter(lane for number in range(len(brokers)) for lane in lanes_pushed_to(tmp_path / str(number)))
        assert journals == dict.fromkeys(LANES, 1), "a lane in two journals has no order"
        await promote(standby)
        traffic.stored_last.clear()
        await traffic.until(lambda: traffic.stored_last.issuperset(LANES))
        await traffic.finish()
    assert await stored(standby.url()) == traffic.accepted
