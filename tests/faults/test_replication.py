"""Commits that a synchronous standby did not confirm: their outcome is unknown, and the broker is not ready."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import OutcomeUnknown
from fairlane.store.postgres.connection import open_database
from tests.faults.outages import _signal, frozen, promote, revive, standby_of
from tests.faults.producers import QUEUE, Producers, check, drained, stored
from tests.postgres import PostgresServer, running_server
from tests.until import until

_WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'"


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    with running_server(18) as server:
        yield server


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    with standby_of(primary) as server:
        yield server


async def cancel_waits(primary: PostgresServer) -> int:
    """Cancel the commits that wait for the standby, and return their number."""
    async with primary.connect() as connection:
        return int(await connection.fetchval(f"SELECT count(pg_cancel_backend(pid)) {_WAITING}"))


async def test_a_commit_whose_wait_was_cancelled_is_unknown(primary: PostgresServer, standby: PostgresServer) -> None:
    database = await open_database(primary.url(), connections=1, statement_cache=True, clock=None)
    await database.write("CREATE TABLE notes (id int)")
    for call in (
        lambda: database.write("INSERT INTO notes VALUES (1)"),
        lambda: database.transact(lambda connection: connection.execute("INSERT INTO notes VALUES (2)")),
    ):
        with frozen(standby):
            writing = asyncio.create_task(call())
            assert await until(lambda: cancel_waits(primary)) == 1
            with pytest.raises(OutcomeUnknown, match="wait for a standby was cancelled"):
                await writing
        assert await database.write("INSERT INTO notes VALUES (3)") == [], "the next commit is confirmed"
    await database.close()


async def test_a_repeat_of_an_unreplicated_push_waits_for_the_standby(
    primary: PostgresServer, standby: PostgresServer
) -> None:
    """The repeat finds a duplicate. It is answered only when the first attempt is replicated, too."""
    async with Broker.open(primary.url()) as broker:
        await broker.push(QUEUE, 0, partition="p")
        with frozen(standby):
            pushing = asyncio.create_task(broker.push(QUEUE, 1, partition="p"))
            assert await until(lambda: cancel_waits(primary))
            assert await until(lambda: cancel_waits(primary)), "the broker repeats it, and the repeat waits again"
            assert not pushing.done()
        with suppress(OutcomeUnknown):
            await pushing
    assert await stored(primary.url()) == {"p": [0, 1]}


async def test_a_repeat_of_an_unreplicated_unique_push_waits_for_the_standby(
    primary: PostgresServer, standby: PostgresServer
) -> None:
    """The repeat finds its own message. A read would answer it before the standby has that."""
    async with Broker.open(primary.url()) as broker:

        async def push() -> None:
            while True:
                with suppress(OutcomeUnknown):
                    await broker.push(QUEUE, 1, partition="p", transaction_id="t", unique="while_running")
                    return

        await broker.push(QUEUE, 0, partition="p")
        with frozen(standby):
            pushing = asyncio.create_task(push())
            assert await until(lambda: cancel_waits(primary))
            assert await until(lambda: cancel_waits(primary)), "the repeat waits again"
            assert not pushing.done()
        await pushing
    assert await stored(primary.url()) == {"p": [0, 1]}


async def test_a_repeat_of_an_unreplicated_transaction_waits_for_the_standby(
    primary: PostgresServer, standby: PostgresServer
) -> None:
    async with Broker.open(primary.url()) as broker:

        async def push() -> None:
            while True:
                with suppress(OutcomeUnknown):
                    async with broker.transaction() as transaction:
                        transaction.push(QUEUE, 1, partition="p", transaction_id="t")
                    return

        await broker.push(QUEUE, 0, partition="p")
        with frozen(standby):
            pushing = asyncio.create_task(push())
            assert await until(lambda: cancel_waits(primary))
            assert await until(lambda: cancel_waits(primary)), "the repeat waits again"
            assert not pushing.done()
        await pushing
    assert await stored(primary.url()) == {"p": [0, 1]}


def either(primary: PostgresServer, standby: PostgresServer) -> str:
    """Return the URL of whichever server accepts writes."""
    return f"{primary.url()},{standby.directory}&target_session_attrs=read-write"


async def test_a_push_that_only_the_primary_has_is_not_answered_as_stored(
    primary: PostgresServer, standby: PostgresServer, tmp_path: Path
) -> None:
    """The standby is promoted without the cancelled commits, and the journal stores their messages again."""
    async with Broker.open(either(primary, standby), journal=str(tmp_path)) as broker:
        before = Producers(broker, count=4, given_ids=False)
        await until(lambda: before.statuses["queued"] > 20)
        await before.stop()
        await asyncio.to_thread(standby.stop, signal.SIGQUIT)
        producers = Producers(broker, count=4, given_ids=False)
        for _ in range(3):
            await until(lambda: cancel_waits(primary))
        local = await stored_on(primary)
        await until(lambda: producers.statuses["buffered"] > 20)
        assert producers.statuses["queued"] == 0
        _signal(primary, signal.SIGKILL)
        await revive(standby)
        await promote(standby)
        assert await stored_on(standby) < local, "the standby lacks what the primary had committed"
        await until(lambda: broker._engine.write_router.health.up)
        await producers.stop()
        await drained(broker)
        assert not producers.errors
        for partition, accepted in before.accepted.items():
            producers.accepted[partition][:0] = accepted
        check(producers, await stored(standby.url()))


async def stored_on(server: PostgresServer) -> int:
    return sum(map(len, (await stored(server.url())).values()))


async def test_a_primary_that_was_replaced_but_still_runs_is_not_ready(
    primary: PostgresServer, standby: PostgresServer, tmp_path: Path
) -> None:
    """Its commits wait for a standby for ever. Once it is stopped, the broker finds the new primary."""
    async with Broker.open(either(primary, standby), journal=str(tmp_path)) as broker:
        producers = Producers(broker, count=4, given_ids=False)
        await until(lambda: producers.statuses["queued"] > 20)
        await promote(standby)

        async def why_not() -> str:
            await broker.status.healthy()
            return broker.status.journal().why_not or ""  # type: ignore[union-attr]

        async def named() -> bool:
            return "wait for a synchronous standby" in await why_not()

        await until(named)
        assert not await broker.status.healthy()
        _signal(primary, signal.SIGKILL)
        await until(broker.status.healthy)
        await producers.stop()
        await drained(broker)
        assert not producers.errors
        check(producers, await stored(standby.url()))
