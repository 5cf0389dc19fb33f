"""The store becomes unavailable under producers: every answer is true, and SQL finds each message once and in order."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from fairlane import App
from fairlane.broker.broker import Broker
from fairlane.errors import InvalidRequest, JournalFull, LaneWaiting, OutcomeUnknown, PayloadInvalid, StoreUnavailable
from fairlane.model.message import PushItem
from fairlane.runtime.clock import wall_clock
from fairlane.testing import AppTest
from fairlane.webhooks.webhook import Received
from fairlane.worker import Worker
from tests.faults.outages import crashed, frozen
from tests.faults.producers import QUEUE, Producers, check, drained, stored
from tests.postgres import PostgresServer
from tests.spec.samples import compiled
from tests.until import SECONDS_MAX, until
from tests.worker.conftest import until_drained


@pytest.mark.parametrize("given_ids", [False, True], ids=["minted", "given"])
async def test_a_frozen_store_loses_doubles_and_reorders_nothing(
    server: PostgresServer, url: str, tmp_path: Path, given_ids: bool
) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        producers = Producers(broker, count=16, given_ids=given_ids)
        await asyncio.sleep(0.5)
        with frozen(server):
            await asyncio.sleep(4)
        await asyncio.sleep(0.5)
        await producers.stop()
        await drained(broker)
        assert producers.errors == []
        assert producers.statuses["queued"] > 0
        assert producers.statuses["buffered"] > 0
    check(producers, await stored(url))


async def test_a_crashed_store_loses_doubles_and_reorders_nothing(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        producers = Producers(broker, count=16, given_ids=True)
        for _ in range(2):
            await asyncio.sleep(0.5)
            async with crashed(server):
                await asyncio.sleep(1)
        await asyncio.sleep(0.5)
        await producers.stop()
        await drained(broker)
        assert producers.errors == []
        assert producers.statuses["buffered"] > 0
    check(producers, await stored(url))


async def test_a_producer_is_answered_at_once_while_the_store_is_frozen(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        await broker.push(QUEUE, 0)
        with frozen(server):
            first = await broker.push(QUEUE, 1)
            assert (first.status, first.reason, first.durability) == ("buffered", "store_unavailable", "journal")
            # From now on, every call that waits for the store waits forever.
            broker._engine.write_router.timeout.seconds = 3600
            for number in range(2, 22):
                assert (await broker.push(QUEUE, number)).status == "buffered"
            with pytest.raises(StoreUnavailable):
                await broker.pop(QUEUE)
            assert broker._engine.journal is not None
            assert broker._engine.journal.state().messages == 21
        await drained(broker)
        batch = await broker.pop(QUEUE, batch=100)
        assert [int(bytes(message.raw)) for message in batch] == list(range(22))


async def test_a_poll_waits_for_the_store_to_come_back(server: PostgresServer, url: str, tmp_path: Path) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        await broker.push(QUEUE, 0)
        async with crashed(server):
            assert (await broker.push(QUEUE, 1)).status == "buffered"
            waiting = asyncio.create_task(broker.pop(QUEUE, batch=10, wait=30))
            await asyncio.sleep(0.3)
            assert not waiting.done()
        batch = await waiting
        assert len(batch) >= 1


async def test_acks_go_to_the_journal_and_are_applied(server: PostgresServer, url: str, tmp_path: Path) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        for number in range(4):
            await broker.push(QUEUE, number)
        batch = await broker.pop(QUEUE, batch=2)
        async with crashed(server):
            outcomes = await broker.ack(list(batch))
            assert [(outcome.success, outcome.durability) for outcome in outcomes] == [(True, "journal")] * 2
            assert {(outcome.queue_position, outcome.reason) for outcome in outcomes} == {(1, "store_unavailable")}
            assert (outcomes[0].estimated_wait or 0) >= 1
            [id] = {UUID(outcome.operation_id or "") for outcome in outcomes}
            assert (await broker.operations.get(id)).status == "pending"
        await drained(broker)
        ended = await broker.operations.get(id)
        assert (ended.status, ended.type, ended.queue) == ("completed", "ACK_BATCH", QUEUE)
        assert (ended.result or b"").count(b'"success":true') == 2
        rest = await broker.pop(QUEUE, batch=10, wait=10)
        assert [int(bytes(message.raw)) for message in rest] == [2, 3]
        assert broker._engine.operation_drain.acks_lost == 0


async def test_an_ack_whose_lease_ended_meanwhile_is_counted_and_the_message_comes_again(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        await broker.push(QUEUE, 0)
        batch = await broker.pop(QUEUE, lease_seconds=1)
        with frozen(server):
            [outcome] = await broker.ack(list(batch))
            assert outcome.durability == "journal"
            await asyncio.sleep(1.0)
            again = asyncio.create_task(broker.pop(QUEUE, wait=20))
        assert [int(bytes(message.raw)) for message in await again] == [0]
        await drained(broker)
        assert broker._engine.operation_drain.acks_lost == 1


async def test_a_queue_without_dedup_is_told_that_the_outcome_is_unknown(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    """If the journal kept such a push as well, it could be stored twice."""
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        await broker.queues.configure(QUEUE, dedup_seconds=0)
        await asyncio.sleep(2)  # the broker hears of the change, and forgets the queue
        await broker.push(QUEUE, 0)  # which it knows from here on, so that the next push reaches the store
        with frozen(server):
            with pytest.raises(OutcomeUnknown, match="does not detect duplicates"):
                await broker.push(QUEUE, 1)
            assert (await broker.push(QUEUE, 2)).status == "buffered"
        await drained(broker)
        found = (await stored(url))["Default"]
        assert found in ([0, 1, 2], [0, 2])


async def test_what_the_catalogue_knows_is_checked_without_the_store(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        await broker.queues.configure(QUEUE, ordering="fifo")
        await broker.push(QUEUE, 0)
        async with crashed(server):
            assert (await broker.push(QUEUE, 1)).status == "buffered"
            with pytest.raises(InvalidRequest, match="fifo"):
                await broker.push(QUEUE, 2, partition="another")
        await drained(broker)
    assert await stored(url) == {"Default": [0, 1]}


async def test_a_transaction_does_not_overtake_the_journal(server: PostgresServer, url: str, tmp_path: Path) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        await broker.push(QUEUE, 0)
        async with crashed(server):
            await broker.push(QUEUE, 1)
            with pytest.raises((LaneWaiting, StoreUnavailable)):
                async with broker.transaction() as transaction:
                    transaction.push(QUEUE, 2)
        await drained(broker)
    assert await stored(url) == {"Default": [0, 1]}


async def test_a_full_journal_refuses_and_keeps_what_it_has(server: PostgresServer, url: str, tmp_path: Path) -> None:
    async with Broker.open(url, journal=str(tmp_path), journal_bytes_max=5_000) as broker:
        await broker.push(QUEUE, 0)
        async with crashed(server):
            accepted = [0]

            async def push_on() -> None:
                for number in range(1, 1000):
                    await broker.push(QUEUE, number)
                    accepted.append(number)

            with pytest.raises(JournalFull):
                await push_on()
        assert 1 < len(accepted) < 100
        await drained(broker)
    assert await stored(url) == {"Default": accepted}


async def test_a_deleted_queue_is_made_anew_and_a_poison_entry_fails_alone(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    async with Broker.open(url, journal=str(tmp_path / "a")) as broker, Broker.open(url) as other:
        await broker.push(QUEUE, 0)
        await broker.push("picky", 0)
        async with crashed(server):
            for number in range(1, 4):
                await broker.push(QUEUE, number, partition="x")
                await broker.push("picky", number, partition="x")
            broker._engine.flags.on = {"pushes_paused"}  # the drain must not begin before the queues changed
            broker._engine.flags.fresh_until = time.monotonic() + 60
        await other.queues.delete(QUEUE)
        await other.queues.configure("picky", ordering="fifo")
        broker._engine.catalogue.queues.clear()  # as if the seconds had passed for which it is trusted
        broker._engine.flags.on = set()
        await drained(broker)
        assert (await stored(url)) == {"x": [1, 2, 3]}
        assert broker._engine.journal is not None
        failed = await broker._engine.journal.page(UUID(int=0), failed=True, limit=10)
        assert [entry.backlog.name for entry in failed] == ["picky"] * 3
        assert "fifo" in (failed[0].error or "")
        assert broker._engine.journal.state().failed == 3


async def test_entries_wait_for_room_in_a_full_queue_and_keep_their_order(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        await broker.queues.configure(QUEUE, max_size=3)
        await broker.push(QUEUE, 0)
        async with crashed(server):
            items = [PushItem(queue=QUEUE, payload=str(number).encode()) for number in (1, 2, 3)]
            assert {outcome.status for outcome in await broker.push_many(items)} == {"buffered"}
            assert (await broker.push(QUEUE, 4)).status == "buffered"
        assert await broker._engine.write_router.health.wait_available(SECONDS_MAX)
        await asyncio.sleep(0.5)
        assert await stored(url) == {"Default": [0]}, "three do not fit behind the one, and the fourth may not overtake"
        got: list[int] = []
        async with asyncio.timeout(SECONDS_MAX):
            while len(got) < 5:
                batch = await broker.pop(QUEUE, batch=10, wait=5)
                got += [int(bytes(message.raw)) for message in batch]
                await broker.ack(list(batch))
        assert got == [0, 1, 2, 3, 4]


async def test_a_scheduled_message_is_refused_while_the_store_is_away_and_its_delay_is_not_lost(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        await broker.push(QUEUE, 0)
        async with crashed(server):
            assert (await broker.push(QUEUE, 1)).status == "buffered"
            with pytest.raises(StoreUnavailable, match="scheduled"):
                await broker.push(QUEUE, 2, delay_ms=60_000)
        await drained(broker)
        assert await stored(url) == {"Default": [0, 1]}
        assert (await broker.push(QUEUE, 2, delay_ms=60_000)).status == "scheduled"


async def test_webhooks_and_types_are_checked_and_kept_once_while_the_store_is_away(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    """This also holds for a broker that starts during the outage: the journal has the applied specs."""
    spec = "app A { queue Typed { message_type { payload: { id: int } } key: payload.id } webhook W { queue: Typed } }"

    def received(body: bytes) -> Received:
        return Received({}, body, "127.0.0.1", wall_clock())

    async with Broker.open(url, journal=str(tmp_path)) as broker:
        await broker.specs.apply(msgspec.json.encode(compiled(spec).spec), consent=True)
        assert broker._engine.journal is not None
        while not await broker._engine.journal.specs():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with crashed(server), Broker.open(url, journal=str(tmp_path)) as broker:
        hook = broker.specs.compiled.webhooks["W"]
        assert hook is not None
        for _ in range(2):
            taken = await broker.webhooks.receive(hook, received(b'{"id":7}'), None)
            assert (taken.status, taken.message_id) == ("buffered", None)
        with pytest.raises(PayloadInvalid, match="expected int"):
            await broker.webhooks.receive(hook, received(b'{"id":"7"}'), None)
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        await drained(broker)
        batch = await broker.pop("Typed", partitions=10, batch=10)
        assert [(one.partition, bytes(one.raw)[:19]) for one in batch] == [("7", b'{"payload":{"id":7}')]


async def test_no_message_of_an_encrypted_queue_waits_in_a_journal_without_a_key(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    """The broker has used neither queue: another broker created one, and a spec declares the other."""
    async with Broker.open(url, journal=str(tmp_path)) as broker:
        await broker.specs.apply(msgspec.json.encode(compiled("app A { queue Declared { encrypted: true } }").spec))
        async with Broker.open(url) as other:
            await other.queues.delete("Declared")
            await other.queues.configure("Made", encryption_enabled=True)
        assert broker._engine.journal is not None
        assert broker._engine.journal_drain is not None
        broker._engine.journal_drain.save_soon()
        while [queue.name for queue in await broker._engine.journal.queues()] != ["Made"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with crashed(server):
            for queue in ("Declared", "Made"):
                with pytest.raises(StoreUnavailable, match="is encrypted, and this broker has no encryption key"):
                    await broker.push(queue, 1)
            assert (await broker.push(QUEUE, 1)).status == "buffered"


@pytest.mark.may_block_loop  # while the server starts again
async def test_workers_outlast_a_database_that_crashes_under_load(server: PostgresServer, url: str) -> None:
    app = App()
    done: Counter[int] = Counter()

    @app.handler("jobs", concurrency=20, lease_seconds=3)
    async def handle(number: int) -> None:
        await asyncio.sleep(0.005)
        done[number] += 1

    async with AppTest(app, store=url) as test, asyncio.timeout(100):
        await test.client.push_many(
            [PushItem(queue="jobs", payload=b"%d" % n, partition=f"lane {n % 40}") for n in range(400)]
        )
        worker = Worker(app, test.url, own_loop=False)
        running = asyncio.create_task(worker.run())
        await until(lambda: len(done) > 40)
        async with crashed(server):
            assert len(done) < 400
        await until(lambda: len(done) == 400)
        await until_drained(test.client, "jobs")
        worker.stop()
        await running
        assert await test.dead_letters("jobs") == []
    assert done.total() <= 440, "what was done is not done again, but for what was in hand"
