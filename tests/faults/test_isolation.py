"""A problem of one lane, request or broker stays isolated: others continue, and the store counts as available."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import asyncpg
import pytest
from msgspec import Raw

# Imported here, because a broker imports them when it opens, on the event loop of the test.
import fairlane.store.journal.journal
import fairlane.store.postgres.store  # noqa: F401
from fairlane.broker.broker import Broker
from fairlane.broker.flags import PUSHES_PAUSED
from fairlane.errors import BrokerFailed, LaneLocked
from fairlane.wire.schedules import ScheduleOptions
from tests.broker_process import broker_process
from tests.conftest import FreshDatabase
from tests.faults.producers import QUEUE, drained, stored
from tests.postgres import PostgresServer
from tests.until import until

OTHER = "unrelated"
SECONDS_MAX = 60


@pytest.fixture
async def url(postgres18: PostgresServer, fresh_database: FreshDatabase) -> str:
    return await fresh_database(postgres18)


@pytest.fixture
async def broker(url: str, tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        yield broker


@contextlib.asynccontextmanager
async def stranger(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Open a foreign session inside a transaction."""
    connection = await asyncpg.connect(url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        yield connection
        await transaction.rollback()
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def held(url: str, queue: str, partition: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Open a foreign session that holds the row of a partition."""
    async with stranger(url) as connection:
        found = await connection.fetch(
            "SELECT p.id FROM fairlane.partitions p JOIN fairlane.queues q ON q.id = p.queue_id"
            " WHERE q.name = $1 AND p.name = $2 FOR UPDATE OF p",
            queue,
            partition,
        )
        assert len(found) == 1
        yield connection


async def poison(url: str) -> None:
    """Make the database reject permanently every row that contains this word."""
    connection = await asyncpg.connect(url)
    await connection.execute(
        "ALTER TABLE fairlane.segments ADD CONSTRAINT defect CHECK (position('poison'::bytea IN body) = 0)"
    )
    await connection.close()


async def serves(broker: Broker, number: int) -> None:
    """Check that an unrelated queue is served as usual."""
    assert (await broker.push(OTHER, number)).status == "queued"
    [message] = await broker.pop(OTHER)
    assert message.data == number
    [acked] = await broker.ack([message])
    assert (acked.success, acked.durability) == (True, None)


def outages(broker: Broker) -> int:
    return broker._engine.write_router.health.outages


async def test_a_broker_that_is_frozen_inside_a_transaction_stops_no_other(url: str, broker: Broker) -> None:
    """Its locks are held only briefly, because the server ends a session that is idle in a transaction."""
    for partition in ("a", "b"):
        await broker.push(QUEUE, 0, partition=partition)
    items = [{"queue": QUEUE, "partition": partition, "payload": -1} for partition in ("a", "b")]
    observer = await asyncpg.connect(url)

    async def is_idle() -> bool:
        return bool(
            await observer.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND pid <> ALL ($1::int[])"
                " AND datname = current_database()",
                [holder.get_server_pid()],
            )
        )

    async def waits() -> bool:
        return bool(
            await observer.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
        )

    process = broker_process(url)
    frozen = await asyncio.to_thread(process.__enter__)
    async with aiohttp.ClientSession() as http:
        try:
            async with held(url, QUEUE, "b") as holder:
                asking = asyncio.create_task(
                    http.post(
                        f"{frozen.url}/api/v1/transaction", json={"operations": [{"type": "push", "items": items}]}
                    )
                )
                await until(waits)  # it holds the first partition and waits for the second
                os.kill(frozen.pid, signal.SIGSTOP)
            await until(is_idle)
            locked = asyncio.create_task(broker.push(QUEUE, 1, partition="a"))
            number = 0
            while await is_idle() or number < 20:
                await serves(broker, number)
                number += 1
            assert (await locked).status in ("queued", "buffered")
            assert outages(broker) == 0
            await drained(broker)
            assert (await stored(url))["a"] == [0, 1]
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
            await asyncio.gather(asking, return_exceptions=True)
            await asyncio.to_thread(process.__exit__, None, None, None)
            await observer.close()


async def test_a_lane_that_somebody_holds_waits_in_the_journal_and_no_other_does(url: str, broker: Broker) -> None:
    await broker.push(QUEUE, 0, partition="a")
    async with held(url, QUEUE, "a"):
        first = await broker.push(QUEUE, 1, partition="a")
        assert (first.status, first.durability, first.reason) == ("buffered", "journal", "lane_locked")
        for number in range(2, 5):
            await serves(broker, number)
            assert (await broker.push(QUEUE, number, partition="a")).reason == "maintaining_order"
            assert (await broker.push(QUEUE, number, partition="b")).status == "queued"
        assert outages(broker) == 0
    await drained(broker)
    assert await stored(url) == {"a": [0, 1, 2, 3, 4], "b": [2, 3, 4]}


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "alone"])
async def test_a_locked_lane_holds_up_no_other_of_its_flush(url: str, tmp_path: Path, journal: bool) -> None:
    partitions = [f"p{number}" for number in range(30)]
    async with Broker.open(url, journal=str(tmp_path) if journal else None) as broker:
        for partition in partitions:
            await broker.push(QUEUE, 0, partition=partition)
        async with held(url, QUEUE, "p7"):
            pushes = {
                partition: asyncio.create_task(broker.push(QUEUE, 1, partition=partition)) for partition in partitions
            }
            await asyncio.wait([push for partition, push in pushes.items() if partition != "p7"])
            assert {pushes[partition].result().status for partition in partitions if partition != "p7"} == {"queued"}
        assert (await pushes["p7"]).status == ("buffered" if journal else "queued")
        if journal:
            await drained(broker)
    assert await stored(url) == {partition: [0, 1] for partition in partitions}


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "alone"])
async def test_a_locked_lane_holds_up_no_ack_of_another(url: str, tmp_path: Path, journal: bool) -> None:
    partitions = [f"p{number}" for number in range(5)]
    async with Broker.open(url, journal=str(tmp_path) if journal else None) as broker:
        for partition in partitions:
            await broker.push(QUEUE, 0, partition=partition)
        messages = {message.partition: message for message in await broker.pop(QUEUE, batch=10, partitions=10)}
        async with held(url, QUEUE, "p3"):
            acks = {partition: asyncio.create_task(broker.ack([messages[partition]])) for partition in partitions}
            await asyncio.wait([ack for partition, ack in acks.items() if partition != "p3"])
            for partition in partitions:
                if partition != "p3":
                    [outcome] = acks[partition].result()
                    assert (outcome.success, outcome.durability) == (True, None)
        [outcome] = await acks["p3"]
        assert (outcome.success, outcome.durability) == (True, "journal" if journal else None)
        if journal:
            await drained(broker)
        for partition in partitions:
            await broker.push(QUEUE, 1, partition=partition)
        again = await broker.pop(QUEUE, batch=10, partitions=10)
        assert sorted(message.partition for message in again) == partitions
        assert {message.data for message in again} == {1}


async def test_a_transaction_that_meets_a_locked_lane_says_so_and_others_go_on(url: str, broker: Broker) -> None:
    await broker.push(QUEUE, 0, partition="a")

    async def transact(partition: str) -> None:
        async with broker.transaction() as transaction:
            transaction.push(QUEUE, 1, partition=partition)

    async with held(url, QUEUE, "a"):
        tries = [asyncio.create_task(transact("a")) for _ in range(30)]  # more than there are connections
        for number in range(3):
            await serves(broker, number)
            await transact("b")
        assert {type(error) for error in await asyncio.gather(*tries, return_exceptions=True)} == {LaneLocked}
        assert outages(broker) == 0
    await transact("a")
    assert await stored(url) == {"a": [0, 1], "b": [1, 1, 1]}


async def test_a_statement_that_fails_for_good_fails_its_request_and_nothing_else(
    url: str, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.push(QUEUE, 0, partition="a")
    await poison(url)
    with caplog.at_level(logging.ERROR):
        payloads = [1, "poison", 2, 3]
        pushes = [broker.push(QUEUE, payload, partition="a") for payload in payloads]
        pushes += [broker.push(QUEUE, payload, partition="b") for payload in payloads]
        outcomes = await asyncio.gather(*pushes, return_exceptions=True)
    assert [type(one) for one in outcomes if isinstance(one, BaseException)] == [BrokerFailed] * 2
    assert [one.status for one in outcomes if not isinstance(one, BaseException)] == ["queued"] * 6
    assert "23514" in caplog.text
    assert outages(broker) == 0
    assert {name: sorted(found) for name, found in (await stored(url)).items()} == {"a": [0, 1, 2, 3], "b": [1, 2, 3]}
    caplog.clear()


async def test_a_locked_lane_holds_up_no_renewal_of_another(url: str, broker: Broker) -> None:
    batches = {}
    for lane in ("a", "b"):
        await broker.push(QUEUE, 0, partition=lane)
        batches[lane] = await broker.pop(QUEUE, partition=lane)
    async with stranger(url) as connection:
        await connection.execute(
            "SELECT 1 FROM fairlane.cursors c JOIN fairlane.partitions p ON p.id = c.partition_id WHERE p.name = 'a'"
            " FOR UPDATE OF c"
        )
        renewals = {lane: asyncio.create_task(broker.renew(batch, 60)) for lane, batch in batches.items()}
        assert (await renewals["b"]).renewed == 1
        with pytest.raises(LaneLocked):
            await renewals["a"]
        assert outages(broker) == 0


async def test_a_locked_lane_does_not_stop_the_journal(url: str, broker: Broker) -> None:
    await broker.push(QUEUE, 0, partition="a")
    async with held(url, QUEUE, "a"):
        assert (await broker.push(QUEUE, 1, partition="a")).status == "buffered"
        await broker._engine.flags.set(PUSHES_PAUSED, True)
        for number in range(5):
            for partition in ("a", "b", "c"):
                pushed = await broker.push(QUEUE, 2 + number, partition=partition)
                assert (pushed.status, pushed.durability) == ("buffered", "journal")
        await broker._engine.flags.set(PUSHES_PAUSED, False)

        async def others_are_stored() -> bool:
            return (await stored(url)) == {"a": [0], "b": [2, 3, 4, 5, 6], "c": [2, 3, 4, 5, 6]}

        await until(others_are_stored)
    await drained(broker)
    assert (await stored(url))["a"] == [0, 1, 2, 3, 4, 5, 6]


async def test_an_entry_that_is_refused_for_good_fails_alone_and_its_lane_goes_on(url: str, broker: Broker) -> None:
    await broker.push(QUEUE, 0, partition="a")
    await poison(url)
    await broker._engine.flags.set(PUSHES_PAUSED, True)
    for payload in (1, "poison", 2):
        for partition in ("a", "b"):
            assert (await broker.push(QUEUE, payload, partition=partition)).status == "buffered"
    assert (await broker.push(QUEUE, 3, partition="c")).status == "buffered"
    await broker._engine.flags.set(PUSHES_PAUSED, False)
    await drained(broker)
    assert await stored(url) == {"a": [0, 1, 2], "b": [1, 2], "c": [3]}
    failed = (await broker.operations.page(status="failed", queue=QUEUE, after=UUID(int=0), limit=10)).operations
    assert sorted(one.partition_name for one in failed) == ["a", "b"]
    assert outages(broker) == 0


async def test_a_locked_lane_holds_up_no_scheduled_message_of_another(url: str, broker: Broker) -> None:
    for partition in ("a", "b"):
        await broker.push(QUEUE, 0, partition=partition)

    async def other_is_stored() -> bool:
        return (await stored(url))["b"] == [0, 1]

    async with held(url, QUEUE, "a"):
        for partition in ("a", "b"):
            assert (await broker.push(QUEUE, 1, partition=partition, delay_ms=1)).status == "scheduled"
        await until(other_is_stored)
        scheduled = [
            broker.push(QUEUE, 2, partition=one, delay_ms=60_000, transaction_id=f"t-{one}") for one in ("a", "b")
        ]
        refused, kept = await asyncio.gather(*scheduled, return_exceptions=True)
        assert isinstance(refused, LaneLocked)
        assert not isinstance(kept, BaseException)
        assert kept.status == "scheduled"
        assert (await stored(url))["a"] == [0]
        assert outages(broker) == 0

    async def all_are_stored() -> bool:
        return (await stored(url))["a"] == [0, 1]

    await until(all_are_stored)


async def test_a_locked_lane_holds_up_no_tick_of_another_schedule(url: str, broker: Broker) -> None:
    for partition in ("a", "b"):
        await broker.push(QUEUE, 0, partition=partition)

    async def ticked() -> bool:
        return len((await stored(url))["b"]) > 1

    async with held(url, QUEUE, "a"):
        for partition in ("a", "b"):
            options = ScheduleOptions(queue=QUEUE, partition=partition, data=Raw(b"1"), every_seconds=1)
            await broker.schedules.define(f"tick {partition}", options)
        await until(ticked)
        assert (await stored(url))["a"] == [0]
        assert outages(broker) == 0


async def test_a_flush_that_takes_too_long_holds_its_own_lanes_and_is_stored_once(url: str, tmp_path: Path) -> None:
    """It is in the journal and may still be stored, so its lanes keep their entries until it has ended."""
    gate = 4711
    async with Broker.open(url, journal=str(tmp_path)) as broker, stranger(url) as keeper:
        await broker.push(QUEUE, 0, partition="a")
        await keeper.execute("SELECT pg_advisory_xact_lock($1)", gate)
        connection = await asyncpg.connect(url)
        await connection.execute(
            "CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN"
            f" IF position('slow'::bytea IN NEW.body) > 0 THEN PERFORM pg_advisory_xact_lock_shared({gate}); END IF;"
            " RETURN NEW; END $$;"
            "CREATE TRIGGER wait BEFORE INSERT ON fairlane.segments FOR EACH ROW EXECUTE FUNCTION public.wait()"
        )
        await connection.close()
        slow = await broker.push(QUEUE, "slow", partition="a")
        assert (slow.status, slow.durability, slow.reason) == ("buffered", "journal", "system_busy")
        assert [lane.partition for lane in broker._engine.write_router.timeout.abandoned_backlogs()] == ["a"]
        for number in range(1, 6):
            await serves(broker, number)
            assert (await broker.push(QUEUE, number, partition="b")).status == "queued"
            assert (await broker.push(QUEUE, number, partition="a")).reason == "maintaining_order"
        assert await stored(url) == {"a": [0], "b": [1, 2, 3, 4, 5]}
        assert outages(broker) == 0
        await keeper.execute("ROLLBACK; BEGIN")
        await drained(broker)
        assert (await stored(url))["a"] == [0, "slow", 1, 2, 3, 4, 5]
