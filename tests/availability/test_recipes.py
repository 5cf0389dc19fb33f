"""The recipes of docs/high-availability.md: Patroni, HAProxy and PgBouncer, while a server is lost and comes back."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Client
from tests.availability.cluster import Cluster, missing, running_cluster, running_haproxy, running_pgbouncer
from tests.broker_process import FAIRLANE, BrokerProcess
from tests.faults.producers import stored
from tests.faults.traffic import LANES, Traffic

pytestmark = pytest.mark.skipif(
    bool(missing()), reason=f"{missing()} missing; `make test` installs them as root on Debian"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


async def test_a_lost_primary_is_replaced_without_an_error_or_a_loss(cluster: Cluster, tmp_path: Path) -> None:
    """Three brokers reach the primary in three ways: by a URL of several hosts, by HAProxy, and by PgBouncer."""
    await cluster.create_database()
    with running_haproxy(cluster) as haproxy, running_pgbouncer(cluster, haproxy) as pgbouncer:
        urls = [
            (cluster.url(),),
            (f"postgresql://fairlane:secret@127.0.0.1:{haproxy}/queues",),
            (
                f"postgresql://fairlane:secret@127.0.0.1:{pgbouncer}/queues",
                *("--listen-url", cluster.url(), "--no-statement-cache"),
            ),
        ]
        brokers = [BrokerProcess(*url, data_dir=tmp_path / str(number)) for number, url in enumerate(urls)]
        try:
            for broker in brokers:
                await asyncio.to_thread(broker.start)
            async with Client([broker.url for broker in brokers]) as client:
                traffic = Traffic(client, consumed=["orders", "orders", *(f"empty-{number}" for number in range(4))])
                await traffic.progress()
                said = await asyncio.to_thread(doctor, cluster.url())
                assert "1 standby, 1 synchronous" in said, said

                lost = await cluster.primary()
                await asyncio.to_thread(lost.kill)
                await traffic.until(lambda: min(traffic.journalled[lane] for lane in LANES) >= 5)
                promoted = await cluster.lone_primary()
                assert promoted is not lost
                await stored_again(traffic)
                await traffic.progress()

                lost.patroni.start()
                assert await cluster.primary() is promoted
                await asyncio.to_thread(cluster.switch_over, lost)
                assert await cluster.primary() is lost
                await stored_again(traffic)
                await traffic.finish()
            assert await stored(cluster.url()) == traffic.accepted
        finally:
            for broker in brokers:
                if broker.running:
                    await asyncio.to_thread(broker.stop)


async def stored_again(traffic: Traffic) -> None:
    """Wait until the pushes of every lane are stored at once again."""
    traffic.stored_last.clear()
    await traffic.until(lambda: traffic.stored_last.issuperset(LANES))


def doctor(url: str) -> str:
    done = subprocess.run(
        [FAIRLANE, "doctor", "--store", url], capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout + done.stderr
