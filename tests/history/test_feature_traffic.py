"""The record of messages that programs enqueue in transactions of the database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fairlane.broker.broker import Broker
from fairlane.verify.feature_recording import FeatureRecordingClient
from fairlane.verify.feature_traffic import FeatureTraffic
from fairlane.verify.history import HistoryWriter, read_history
from fairlane.verify.requester import Requester
from tests.postgres import PostgresServer, running_server
from tests.until import until

_WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'"


class _Committing(Random):
    """A source of random numbers with which every transaction commits."""

    def random(self) -> float:
        return 0.0


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with running_server(16) as server:
        yield server


async def test_a_commit_that_no_standby_confirmed_is_not_recorded_as_done(
    server: PostgresServer, tmp_path: Path
) -> None:
    """PostgreSQL answers it as successful and warns, and a failover may lose it."""
    file = tmp_path / "client-1.jsonl"
    requester, writer = Requester([f"unix:{tmp_path}/nobody"]), HistoryWriter(file)
    client = FeatureRecordingClient(requester, writer, _Committing(1), "x.")
    async with Broker.open(server.url(), retention_interval=0) as broker:
        await broker.push("x.staged", 1)
    traffic = FeatureTraffic(client, "1", server.url())
    async with server.connect() as admin:
        await admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        await admin.execute("SELECT pg_reload_conf()")
        enqueuing = asyncio.create_task(traffic.enqueue())
        await until(lambda: admin.fetchval(f"SELECT count(*) > 0 {_WAITING}"))
        await admin.execute(f"SELECT pg_cancel_backend(pid) {_WAITING}")
        await enqueuing
    await traffic.close()
    requester.close()
    writer.close()
    assert {push.fate for push in read_history([file]).pushes} == {"unknown"}
