"""Brokers of two versions on one PostgreSQL database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import asyncpg
import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import StoreUnsafe
from fairlane.store import schema
from fairlane.store.postgres import migrate as migration
from fairlane.store.postgres import notify, versions
from fairlane.store.postgres.migrate import migrate
from fairlane.store.schema import Migration, Schema
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer
from tests.until import until

OLDER, NEWER = "0.0.9", "99.0.1"


@pytest.fixture
async def url(postgres18: PostgresServer, fresh_database: FreshDatabase) -> str:
    return await fresh_database(postgres18)


@pytest.fixture
async def connection(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == versions.__name__]


@pytest.mark.parametrize(("installed", "kept"), [(OLDER, False), (versions.OWN, False), (NEWER, True)])
async def test_an_older_version_leaves_the_functions_of_a_newer_one(
    connection: asyncpg.Connection[Any], installed: str, kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await migrate(connection)
    await connection.execute(
        "CREATE OR REPLACE FUNCTION fairlane.never() RETURNS timestamptz LANGUAGE sql IMMUTABLE AS 'SELECT now()';"
    )
    await connection.execute("UPDATE fairlane.functions SET hash = 'another', version = $1", installed)
    await migrate(connection)
    text = await connection.fetchval("SELECT prosrc FROM pg_proc WHERE oid = 'fairlane.never()'::regprocedure")
    assert (text == "SELECT now()") is kept
    assert any(NEWER in line for line in told(caplog)) is kept


def test_a_later_release_is_newer() -> None:
    releases = ["0.9.10", "0.10.0rc1", "0.10.0", "0.10.1", "1.0"]
    for number, release in enumerate(releases):
        assert [versions.is_newer(release, other) for other in releases] == [n < number for n in range(len(releases))]
    assert not versions.is_newer("0.10.0+local", "0.10.0")


async def test_a_broker_says_which_other_versions_use_its_store(
    url: str, connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify, "application_name", lambda: f"fairlane {OLDER} schema 1")
    async with Broker.open(url):
        await until(lambda: versions.running(connection))
        assert told(caplog) == []
        monkeypatch.undo()
        async with Broker.open(url):
            [line] = told(caplog)
            assert f"Fairlane {OLDER} uses the store, too" in line


async def test_a_migration_that_running_brokers_cannot_follow_is_refused(
    url: str, connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker.open(url) as broker:
        await until(lambda: versions.running(connection))
        known = schema.load(versions.PACKAGE)
        text = f"-- needs: {known.version + 1}\nCREATE TABLE fairlane.notes (id int);"
        later = Schema(known.text + text, (*known.migrations, Migration(known.version + 1, "notes", text)))
        monkeypatch.setattr(schema, "load", lambda package: later)
        with pytest.raises(StoreUnsafe, match=rf"brokers of Fairlane {versions.OWN} use the database"):
            await migrate(connection)
        assert await connection.fetchval("SELECT to_regclass('fairlane.notes')") is None
        await broker.push("orders", 1)
    await migrate(connection)
    assert await connection.fetchval("SELECT to_regclass('fairlane.notes')") is not None


async def test_a_migration_waits_for_a_lock_without_holding_up_others_for_long(
    url: str, connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(connection)
    monkeypatch.setattr(migration, "_LOCK_TIMEOUT", "SET LOCAL lock_timeout = '100ms'")
    known = schema.load(versions.PACKAGE)
    text = "ALTER TABLE fairlane.queues ADD COLUMN note text;"
    later = Schema(known.text + text, (*known.migrations, Migration(known.version + 1, "note", text)))
    monkeypatch.setattr(schema, "load", lambda package: later)
    stranger: asyncpg.Connection[Any] = await asyncpg.connect(url)
    transaction = stranger.transaction()
    await transaction.start()
    await stranger.execute("LOCK TABLE fairlane.queues IN ACCESS SHARE MODE")
    migrating = asyncio.create_task(migrate(connection))
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    for wanted in (1, 0):
        await until(partial(_is, stranger, waits, wanted))
    await transaction.rollback()
    await migrating
    await stranger.execute("SELECT note FROM fairlane.queues")
    await stranger.close()


async def _is(connection: asyncpg.Connection[Any], statement: str, wanted: int) -> bool:
    return bool(await connection.fetchval(statement) == wanted)
