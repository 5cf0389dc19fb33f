"""Messages that a program enqueues in its own transaction, and the moves that push them."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import RFC_4122, UUID

import asyncpg
import msgspec

from fairlane.broker.broker import Broker
from fairlane.model.message import Message
from fairlane.store.contract.values import DeadFilter
from tests.spec.samples import compiled
from tests.staged.conftest import Database
from tests.until import until

App: TypeAlias = asyncpg.Connection


async def enqueue(app: App, queue: str, data: Any, **options: Any) -> str:
    named = "".join(f", {name} => ${number}" for number, name in enumerate(options, 3))
    found: str = await app.fetchval(
        f"SELECT fairlane.enqueue($1, $2::json{named})", queue, json.dumps(data), *options.values()
    )
    return found


async def popped(broker: Broker, queue: str, count: int, **options: Any) -> list[Message[Any]]:
    """Pop and ack this many messages."""
    found: list[Message[Any]] = []
    while len(found) < count:
        batch = await broker.pop(queue, batch=count - len(found), partitions=100, wait=60, **options)
        found += batch
        await broker.ack(batch)
    return found


async def test_a_message_comes_with_the_commit_and_not_before(broker: Broker, app: App) -> None:
    async with app.transaction():
        id = await enqueue(app, "orders", {"id": 1})
        assert not await broker.pop("orders")
    [message] = await popped(broker, "orders", 1)
    assert (message.data, message.transaction_id, message.partition) == ({"id": 1}, id, "Default")


async def test_a_new_id_is_a_uuid_of_its_time(app: App) -> None:
    before = time.time()
    rows = await app.fetch("SELECT fairlane.enqueue('orders', '1') FROM generate_series(1, 1000)")
    ids = {UUID(id) for (id,) in rows}
    assert len(ids) == 1000
    assert {(id.version, id.variant) for id in ids} == {(7, RFC_4122)}
    assert all(before - 1 < (id.int >> 80) / 1000 < time.time() + 1 for id in ids)


async def test_a_rollback_and_a_savepoint_take_their_messages_back(broker: Broker, app: App) -> None:
    outer = app.transaction()
    await outer.start()
    await enqueue(app, "orders", "rolled back")
    await outer.rollback()
    async with app.transaction():
        await enqueue(app, "orders", "first")
        inner = app.transaction()
        await inner.start()
        await enqueue(app, "orders", "in a savepoint")
        await inner.rollback()
        await enqueue(app, "orders", "last")
    assert [one.data for one in await popped(broker, "orders", 2)] == ["first", "last"]
    assert not await broker.pop("orders")


async def test_a_message_has_its_options(broker: Broker, app: App) -> None:
    headers = {"a": "1", "b": "é"}
    await enqueue(
        app,
        "orders",
        [1],
        partition="p",
        transaction_id="id-1",
        type="made",
        headers=json.dumps(headers),
        max_attempts=7,
    )
    [message] = await popped(broker, "orders", 1)
    assert (message.partition, message.transaction_id, message.type) == ("p", "id-1", "made")
    assert (message.headers, message.max_attempts) == (headers, 7)


async def test_a_payload_keeps_its_bytes(broker: Broker, app: App) -> None:
    text = '{"a" : 1.50, "b":"\\u00e9é",   "c":12345678901234567890}'
    await app.execute("SELECT fairlane.enqueue('orders', $1)", text)
    [message] = await popped(broker, "orders", 1)
    assert bytes(message.raw) == text.encode()


async def test_the_order_of_a_partition_is_kept(broker: Broker, app: App) -> None:
    for n in range(50):
        async with app.transaction():
            for lane in range(3):
                await enqueue(app, "orders", n, partition=f"p{lane}")
    found = await popped(broker, "orders", 150)
    for lane in range(3):
        assert [one.data for one in found if one.partition == f"p{lane}"] == list(range(50))


async def test_a_known_id_is_stored_once(broker: Broker, app: App, database: Database) -> None:
    await broker.push("orders", "first", transaction_id="a")
    async with app.transaction():
        for data in ("second", "third"):
            assert await enqueue(app, "orders", data, transaction_id="a") == "a"
        await enqueue(app, "orders", "fourth", transaction_id="b")
        await enqueue(app, "orders", "fifth", transaction_id="b")
    assert [one.data for one in await popped(broker, "orders", 2)] == ["first", "fourth"]
    await until(lambda: _none_staged(database))
    await enqueue(app, "orders", "again", transaction_id="b")
    await until(lambda: _none_staged(database))
    assert not await broker.pop("orders")


async def _none_staged(database: Database) -> bool:
    return await database.staged() == 0


async def test_a_message_for_later_is_scheduled(broker: Broker, app: App, database: Database) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    await enqueue(app, "orders", "later", deliver_at=later, transaction_id="id")
    await enqueue(app, "orders", "past", deliver_at=later - timedelta(hours=2))
    assert [one.data for one in await popped(broker, "orders", 1)] == ["past"]
    await until(lambda: _none_staged(database))
    [scheduled] = (await broker.scheduled.page("orders")).messages
    assert abs(scheduled.deliver_at - later.timestamp() * 1e6) < 1000
    await broker.scheduled.reschedule("orders", "id", delay_ms=1)
    assert [one.data for one in await popped(broker, "orders", 1)] == ["later"]


async def test_a_priority_of_an_unordered_queue_is_kept(broker: Broker, app: App, database: Database) -> None:
    await broker.queues.configure("jobs", ordering="unordered")
    async with app.transaction():
        await enqueue(app, "jobs", "usual")
        await enqueue(app, "jobs", "urgent", priority=9)
    await until(lambda: _none_staged(database))
    found = await popped(broker, "jobs", 2)
    assert {one.data: one.priority for one in found} == {"usual": 0, "urgent": 9}


async def test_a_full_queue_lets_its_messages_wait_and_no_others(broker: Broker, app: App, database: Database) -> None:
    await broker.queues.configure("small", max_size=2)
    async with app.transaction():
        for n in range(5):
            await enqueue(app, "small", n)
        await enqueue(app, "other", "passes")
    assert [one.data for one in await popped(broker, "other", 1)] == ["passes"]
    assert await database.staged() == 3
    assert [one.data for one in await popped(broker, "small", 5)] == list(range(5))


async def test_a_locked_partition_lets_its_messages_wait_and_no_others(
    broker: Broker, app: App, database: Database
) -> None:
    await broker.push("orders", "first", partition="held")
    [message] = await popped(broker, "orders", 1)
    holder = await asyncpg.connect(database.url)
    holding = holder.transaction()
    await holding.start()
    await holder.execute("SELECT 1 FROM fairlane.partitions WHERE id = $1 FOR UPDATE", message.partition_id.id)
    async with app.transaction():
        await enqueue(app, "orders", "held", partition="held")
        await enqueue(app, "orders", "free", partition="free")
    assert [one.data for one in await popped(broker, "orders", 1)] == ["free"]
    assert await database.staged() == 1
    await holding.rollback()
    await holder.close()
    assert [one.data for one in await popped(broker, "orders", 1)] == ["held"]


async def test_a_deleted_queue_takes_its_staged_messages_with_it(database: Database) -> None:
    async with Broker.open(database.url) as broker:
        await broker.staged.grant(database.role)
        await broker.queues.configure("orders")
    app = await asyncpg.connect(database.role_url)
    await enqueue(app, "orders", "before")
    await enqueue(app, "others", "stays")
    during = app.transaction()
    await during.start()
    await enqueue(app, "orders", "during")
    await database.sql("SELECT fairlane.drop_queue(id) FROM fairlane.queues WHERE name = 'orders'")
    await during.commit()
    await app.close()
    async with Broker.open(database.url) as broker:
        assert [one.data for one in await popped(broker, "others", 1)] == ["stays"]
        assert [one.data for one in await popped(broker, "orders", 1)] == ["during"]


async def test_a_queue_that_is_deleted_under_staged_messages_is_made_again_for_later_ones(
    broker: Broker, app: App
) -> None:
    await enqueue(app, "orders", 1)
    await popped(broker, "orders", 1)
    await broker.queues.delete("orders")
    await enqueue(app, "orders", 2)
    assert [one.data for one in await popped(broker, "orders", 1)] == [2]


async def test_a_long_transaction_holds_nobody_up(broker: Broker, app: App, database: Database) -> None:
    other = await asyncpg.connect(database.role_url)
    long = other.transaction()
    await long.start()
    await enqueue(other, "orders", "early", partition="a")
    for n in range(3):
        await enqueue(app, "orders", n, partition="a")
        assert [one.data for one in await popped(broker, "orders", 1)] == [n]
    await long.commit()
    await other.close()
    assert [one.data for one in await popped(broker, "orders", 1)] == ["early"]


async def test_a_message_that_does_not_fit_its_type_is_a_dead_letter(broker: Broker, app: App) -> None:
    spec = compiled("app Shop { queue orders { message_type { id: int } } }").spec
    await broker.specs.apply(msgspec.json.encode(spec), consent=True)
    async with app.transaction():
        await enqueue(app, "orders", {"id": 1})
        await enqueue(app, "orders", {"id": "two"}, transaction_id="bad")
        await enqueue(app, "orders", {"id": 3})
    assert [one.data for one in await popped(broker, "orders", 2)] == [{"id": 1}, {"id": 3}]
    [letter] = await broker.dead_letters.page("orders")
    assert (letter.transaction_id, json.loads(bytes(letter.raw))) == ("bad", {"id": "two"})
    assert letter.error == "enqueued, and refused: id: expected int, got string"
    assert len(await broker.dead_letters.replay("orders", DeadFilter(ids=[letter.id]), payload=b'{"id":2}')) == 1
    assert [one.data for one in await popped(broker, "orders", 1)] == [{"id": 2}]


async def test_many_rows_after_an_outage_come_in_order_and_once(database: Database) -> None:
    async with Broker.open(database.url) as broker:
        await broker.staged.grant(database.role)
    app = await asyncpg.connect(database.role_url)
    await app.execute(
        "SELECT fairlane.enqueue('orders', to_json(n), partition => 'p' || n % 16) FROM generate_series(0, 11999) n"
    )
    await app.close()
    async with Broker.open(database.url) as one, Broker.open(database.url) as other:
        found = await asyncio.gather(popped(one, "orders", 6000), popped(other, "orders", 6000))
    data = [message.data for some in found for message in some]
    assert sorted(data) == list(range(12000))


async def test_two_brokers_move_each_message_once_and_in_order(broker: Broker, app: App, database: Database) -> None:
    async with Broker.open(database.url):
        for n in range(400):
            await enqueue(app, "orders", n, partition=f"p{n % 4}")
        found = await popped(broker, "orders", 400)
    for lane in range(4):
        assert [one.data for one in found if one.partition == f"p{lane}"] == list(range(lane, 400, 4))
