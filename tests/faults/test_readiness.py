"""Readiness of a broker: its store must commit a write, and an idle broker notices an outage and its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.deferral import journal_drain, store_health
from tests.broker_process import broker_process
from tests.faults.outages import crashed
from tests.postgres import PostgresServer
from tests.until import until


@asynccontextmanager
async def configured(server: PostgresServer, setting: str, value: str) -> AsyncIterator[None]:
    """Run a server with another value of a setting, until the end of the block."""
    async with server.connect("postgres") as connection:
        await connection.execute("SET default_transaction_read_only = off; SET synchronous_commit = off")
        try:
            await connection.execute(f"ALTER SYSTEM SET {setting} = {value}")
            await connection.execute("SELECT pg_reload_conf()")
            yield
        finally:
            await connection.execute(f"ALTER SYSTEM RESET {setting}")
            await connection.execute("SELECT pg_reload_conf()")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the messages that the store watch logged, without their details."""
    return [
        record.getMessage().partition(",")[0].partition(" after")[0]
        for record in caplog.records
        if record.name == store_health.__name__
    ]


async def test_a_store_whose_commits_hang_is_not_ready(
    server: PostgresServer, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        assert await broker.status.healthy()
        async with configured(server, "synchronous_standby_names", "'nobody'"):

            async def unhealthy() -> bool:
                return not await broker.status.healthy()

            await until(unhealthy)
            assert broker.status.journal().store_up is False  # type: ignore[union-attr]
            async with server.connect("postgres") as connection:
                waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                for _ in range(3):
                    await broker.status.healthy()
                assert await connection.fetchval(waiting) < 10, "questions do not pile up"
        await until(broker.status.healthy)
        assert told(caplog) == ["store unavailable", "store available again"]


async def test_a_broker_that_nobody_asks_notices_an_outage_and_its_end(
    server: PostgresServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Saving what the journal knows of queues would notice the outage too, but only half a minute later.
    monkeypatch.setattr(journal_drain, "_SNAPSHOT_SECONDS", 1e9)
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        async with crashed(server):
            await until(lambda: not broker._engine.write_router.health.up)
        await until(lambda: broker._engine.write_router.health.up)
        assert told(caplog) == ["store unavailable", "store available again"]


async def test_the_reason_of_an_outage_is_told_wherever_it_is_shown(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        async with configured(server, "default_transaction_read_only", "on"):

            async def away() -> list[str]:
                await broker.status.healthy()
                return [one.sentence for one in await broker.findings.all() if one.kind == "store_away"]

            [sentence] = await until(away)
            assert "the database is read-only" in sentence
            assert "read-only" in (broker.status.journal().why_not or "")  # type: ignore[union-attr]
        await until(broker.status.healthy)


async def test_many_who_ask_share_one_write(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        asked = 0
        answer = broker._engine.store.check_health

        async def counted() -> None:
            nonlocal asked
            asked += 1
            await answer()

        monkeypatch.setattr(broker._engine.store, "check_health", counted)
        for _ in range(5):
            assert all(await asyncio.gather(*[broker.status.healthy() for _ in range(20)]))
        assert asked <= 2


@pytest.mark.may_block_loop  # it starts a broker
async def test_an_idle_broker_tells_of_an_outage_and_of_its_end_once(server: PostgresServer, url: str) -> None:
    with broker_process(url, "--log-format", "json") as broker:
        async with crashed(server):
            await until(lambda: "store unavailable" in "".join(broker.log))
        await until(lambda: "store available again" in "".join(broker.log))
    lines = [json.loads(line) for line in broker.log[1:] if line.startswith("{")]
    loud = [line["message"] for line in lines if line["level"] in ("warning", "error")]
    assert sum(text.startswith("store unavailable") for text in loud) == 1
    assert sum(text.startswith("store available again") for text in loud) == 1
    assert not [text for text in loud if "InternalClientError" in text or "Error(" in text]
    assert len(loud) <= 4, loud
