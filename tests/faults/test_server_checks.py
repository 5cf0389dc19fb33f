"""The checks of a server by `fairlane doctor`, on servers where something is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from fairlane.store.postgres import server_checks
from fairlane.store.postgres.doctor import diagnose
from fairlane.store.postgres.server_checks import check_server
from tests.faults.outages import standby_of
from tests.faults.test_readiness import configured
from tests.postgres import PostgresServer, running_server
from tests.until import until


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with running_server(18) as server:
        yield server


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    with standby_of(primary) as server:
        yield server


@asynccontextmanager
async def session(server: PostgresServer, role: str = "postgres") -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(server.url().replace("postgres@", f"{role}@"))
    try:
        await connection.execute("SET synchronous_commit = local")
        yield connection
    finally:
        await connection.close()


async def checked(url: str, check: str, processes: int = 1) -> tuple[str, str]:
    """Return what a new session finds in one check, and its advice."""
    connection = await asyncpg.connect(url)
    try:
        return {name: (state, advice) async for name, state, advice in check_server(connection, processes)}[check]
    finally:
        await connection.close()


async def test_a_server_without_a_standby_is_well(primary: PostgresServer) -> None:
    found = [finding async for finding in diagnose(primary.url(), None)]
    assert [finding for finding in found if finding[2]] == []
    assert ("replication", "no standby: this server has the only copy", "") in found


async def test_a_synchronous_standby_is_well_and_one_that_lags_is_told_of(
    primary: PostgresServer, standby: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def replicated() -> bool:
        return (await checked(primary.url(), "replication"))[0].startswith("1 standby, 1 synchronous")

    await until(replicated)
    assert (await checked(primary.url(), "replication"))[1] == ""
    monkeypatch.setattr(server_checks, "LAG_BYTES_MAX", -1)
    assert "look at the disk and the network" in (await checked(primary.url(), "replication"))[1]


@pytest.mark.parametrize(
    ("setting", "value", "state", "advice"),
    [
        ("synchronous_standby_names", "''", "none synchronous", "'ANY 1 (a, b)'"),
        ("synchronous_standby_names", "'nobody'", "no such standby is connected", "start the standby"),
        ("synchronous_commit", "'local'", "commits do not wait", "set synchronous_commit to on"),
    ],
)
async def test_a_standby_that_does_not_protect_commits_is_told_of(
    primary: PostgresServer, standby: PostgresServer, setting: str, value: str, state: str, advice: str
) -> None:
    async with configured(primary, setting, value):

        async def told() -> tuple[str, str] | None:
            found = await checked(primary.url(), "replication")
            return found if state in found[0] else None

        assert advice in (await until(told))[1]


async def test_a_role_that_may_not_see_standbys_is_told_what_it_needs(
    primary: PostgresServer, standby: PostgresServer
) -> None:
    async with session(primary) as admin, configured(primary, "synchronous_standby_names", "''"):
        await admin.execute("CREATE ROLE weak LOGIN")
        weak = primary.url().replace("postgres@", "weak@")
        assert await checked(weak, "replication") == (
            "1 standby, whose state this role may not see",
            "GRANT pg_monitor to the role, and run this again",
        )
        assert "not known" in (await checked(weak, "server disk"))[0]
        await admin.execute("GRANT pg_monitor TO weak")
        assert "none synchronous" in (await checked(weak, "replication"))[0]


async def test_a_slot_that_nobody_uses_is_told_of(primary: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_checks, "SLOT_BYTES_MAX", -1)
    async with session(primary) as admin:
        await admin.execute("SELECT pg_create_physical_replication_slot('gone', true)")
        try:
            state, advice = await checked(primary.url(), "slot")
        finally:
            await admin.execute("SELECT pg_drop_replication_slot('gone')")
    assert "slot gone is not in use and keeps" in state
    assert "pg_drop_replication_slot('gone')" in advice


async def test_too_few_connections_for_the_processes_of_a_broker_are_told_of(primary: PostgresServer) -> None:
    assert (await checked(primary.url(), "connections"))[1] == ""
    state, advice = await checked(primary.url(), "connections", processes=40)
    assert "of 200 are free, and this broker takes up to 400" in state
    assert "raise max_connections" in advice


async def test_a_transaction_that_is_open_for_long_is_named(
    primary: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_checks, "TRANSACTION_SECONDS_MAX", 0.0)
    async with session(primary) as stranger, stranger.transaction():
        await stranger.execute("SET LOCAL application_name = 'nightly report'")
        state, advice = await checked(primary.url(), "transactions")
        assert state == "one of nightly report is open for 0 minutes"
        assert f"pg_terminate_backend({stranger.get_server_pid()})" in advice


async def test_tables_that_are_not_vacuumed_are_told_of(
    primary: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_checks, "DEAD_ROWS_MAX", 10)
    async with session(primary) as admin:
        await admin.execute("CREATE SCHEMA fairlane")
        await admin.execute(
            "CREATE TABLE fairlane.busy WITH (autovacuum_enabled = off) AS SELECT generate_series(1, 50)"
        )
        await admin.execute("DELETE FROM fairlane.busy")
        await admin.execute("SELECT pg_stat_force_next_flush()")
        state, advice = await checked(primary.url(), "autovacuum")
        assert state == "fairlane.busy has 50 dead rows and 0 others"
        assert advice == "end old transactions, then VACUUM fairlane.busy"
        await admin.execute("DROP SCHEMA fairlane CASCADE")
    async with configured(primary, "autovacuum", "off"):

        async def off() -> str:
            state, advice = await checked(primary.url(), "autovacuum")
            return advice if state.startswith("it is off") else ""

        assert "set autovacuum" in await until(off)


async def test_a_disk_that_is_nearly_full_is_told_of(primary: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    state, advice = await checked(primary.url(), "server disk")
    assert state.endswith(f"GiB free in {primary.directory}/data")
    assert advice == ""
    monkeypatch.setattr(server_checks, "FREE_BYTES_MIN", 1 << 60)
    assert "free some space" in (await checked(primary.url(), "server disk"))[1]
