"""Encryption at rest: nothing is stored in plain text, and nothing can be read without the key."""

from __future__ import annotations

import asyncio
import base64
import os
from typing import Any

import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import OutcomeUnknown, SealError
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.queue import Queue
from fairlane.model.segment import messages, pack
from fairlane.store import codec
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Added, DeadFilter, ScheduledSlice
from fairlane.store.families.data_keys import DataKeys
from fairlane.store.keyring import Keyring
from fairlane.wire.pauses import Explained
from fairlane.wire.sources import SourcePage, SourceRecord
from tests.conformance.harness import Harness
from tests.conformance.operation_driver import enqueue, no_operations, work_off
from tests.lost_answers import AWAY, fails

CANARY = "canary-7f3a91"
OLD, NEW = os.urandom(32), os.urandom(32)


async def opened(harness: Harness, *keys: bytes) -> Store:
    """Open the store again with these keys."""
    await harness.reopen()
    await harness.store.codec.set_keyring(Keyring(keys) if keys else None)
    return harness.store


async def sealed_queue(harness: Harness, **options: Any) -> Queue:
    return await harness.queue("secrets", encryption_enabled=True, **options)


async def bodies(harness: Harness, queue: Queue) -> list[bytes]:
    """Return the stored bodies of the log."""
    partition = await harness.partition(queue)
    rows = await harness.backend.sql(
        "SELECT body FROM fairlane.segments WHERE partition_id = $1 ORDER BY first_pos", partition.id.id
    )
    return [bytes(row[0]) for row in rows]


async def test_what_goes_in_clear_comes_out_clear_and_lies_there_sealed(harness: Harness) -> None:
    await opened(harness, OLD)
    queue, plain = await sealed_queue(harness), await harness.queue()
    payload = {"secret": CANARY, 'quote " and ,"data":': [1, {"sealed": "x"}, "\\"], "n": None}
    await harness.push(queue, [payload, CANARY, None], ids=["a", "b", 'id ",\\"sealed\\":\\"'])
    await harness.push(plain, [payload])
    for body in await bodies(harness, queue):
        assert CANARY.encode() not in body
        assert b'"transactionId":"a"' in body, "ids stay readable: the log finds duplicates by them"
    assert any(CANARY.encode() in body for body in await bodies(harness, plain))
    taken = await harness.pop(queue)
    assert taken.data == [payload, CANARY, None]
    assert taken.positions == [0, 1, 2]
    partition = await harness.partition(queue)
    segments = await harness.store.messages.read(partition.id, 1, 2)
    assert [msgspec.json.decode(one.raw) for one in messages(segments, 1, 2)] == [CANARY]
    assert (await harness.pop(plain)).data == [payload]


async def test_ids_are_still_known_and_batches_may_begin_and_end_inside_a_segment(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    await harness.push(queue, list(range(10)), ids=[f"id {n}" for n in range(10)])
    assert type(await harness.try_push(queue, [99], ids=["id 4"])).__name__ == "Duplicates"
    seen = []
    while taken := await harness.pop(queue, batch=3):
        seen.append(taken.data)
        await harness.ack(taken)
    assert seen == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


async def test_without_a_key_nothing_is_stored_and_nothing_is_delivered(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness, retry_limit=0)
    await harness.push(queue, [CANARY])
    for keys in ((), (NEW,)):
        await opened(harness, *keys)
        broker = harness.broker
        if not keys:
            assert not harness.store.seals
            with pytest.raises(SealError):
                await harness.try_push(queue, [1])
            with pytest.raises(SealError):
                await broker.push(queue.name, 1)
            other = await harness.queue()
            assert (await broker.push(other.name, 1)).status == "queued", "other queues do not pay for it"
        assert len(await broker.pop(queue.name)) == 0
        harness.clock.advance(120)
    await opened(harness, OLD)
    taken = await harness.pop(queue)
    assert taken.data == [CANARY]
    assert taken.lane.attempts == 0, "nobody is charged for a missing key"


async def test_messages_whose_key_cannot_be_read_now_are_given_back(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    await harness.push(queue, [CANARY])
    await opened(harness, OLD)  # this store has not read the data key yet
    fails(DataKeys, "get", AWAY)
    with pytest.raises(OutcomeUnknown):
        await harness.broker.pop(queue.name)
    [message] = await harness.broker.pop(queue.name, wait=30)
    assert (message.data, message.failed_attempts) == (CANARY, 0)


async def test_a_missing_key_is_explained_and_its_lane_is_read_soon_after_it_is_back(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    await harness.push(queue, [CANARY])
    await opened(harness)
    assert len(await harness.broker.pop(queue.name)) == 0
    found = await given_back(harness.broker, queue.name)
    assert (found.reason, "has no encryption key" in found.sentence) == ("sealed", True)
    await opened(harness, NEW)
    found = await harness.broker.pauses.explain(queue.name, DEFAULT_PARTITION)
    assert (found.reason, found.until) == ("asleep", harness.clock() + 5_000_000)
    assert "a broker lacks its encryption key" in found.sentence
    await opened(harness, OLD)
    harness.clock.advance(5)
    assert (await harness.pop(queue)).data == [CANARY]


async def given_back(broker: Broker, queue: str) -> Explained:
    """Return why the lane does not move after a pop found its message unreadable and released it."""
    async with asyncio.timeout(30):
        while (found := await broker.pauses.explain(queue, DEFAULT_PARTITION)).reason == "leased":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


async def test_a_key_follows_another_without_a_pause(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    await harness.push(queue, [1])
    await opened(harness, OLD, NEW)
    await harness.push(queue, [2])
    await opened(harness, NEW, OLD)
    await harness.push(queue, [3])
    await opened(harness, NEW)
    await harness.push(queue, [4])
    assert await harness.drain(queue) == [1, 2, 3, 4]
    keks = {key.kek for key in await harness.store.data_keys.of_queue(queue.id)}
    assert keks == {Keyring([NEW]).active}, "rotation wraps the data keys anew, not the messages"


async def test_brokers_read_what_others_sealed_and_data_keys_do_not_serve_for_ever(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    second = await harness.open_second()
    if second is not harness.store:
        await second.codec.set_keyring(Keyring([OLD]))
    await harness.push(queue, [1])
    await harness.push(queue, [2], store=second)
    before = len(await harness.store.data_keys.of_queue(queue.id))
    harness.clock.advance(codec.KEY_SECONDS)
    await harness.push(queue, [3])
    monkeypatch.setattr(codec, "KEY_USES", 1)
    await harness.push(queue, [4])
    assert len(await harness.store.data_keys.of_queue(queue.id)) == before + 2
    assert (await harness.pop(queue, store=second)).data == [1, 2, 3, 4]


async def test_messages_of_both_kinds_are_read_when_the_option_changes(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await harness.queue()
    await harness.push(queue, ["clear"])
    queue = await harness.configure(queue, encryption_enabled=True)
    await harness.push(queue, [CANARY])
    queue = await harness.configure(queue)
    await harness.push(queue, ["clear again"])
    assert await harness.drain(queue) == ["clear", CANARY, "clear again"]


async def test_a_changed_byte_is_refused_and_so_is_a_message_in_anothers_place(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    [one, other] = [await harness.partition(queue, name) for name in ("one", "other")]
    slice_ = harness.slice(queue, one, [CANARY, "neighbour"])
    box: Any = harness.store
    await box.codec.prepare(queue.id)
    first, second = (box.codec.seal_message(queue.id, one.id, fragment) for fragment in slice_.fragments)
    assert box.codec.open_message(one.id, first) == slice_.fragments[0]
    with pytest.raises(SealError):
        box.codec.open_message(other.id, first)
    swapped = first[: first.index(b',"sealed"')] + second[second.index(b',"sealed"') :]
    with pytest.raises(SealError):
        box.codec.open_message(one.id, swapped)
    head, _, rest = first.rpartition(b'"sealed":"')
    record = base64.b64decode(rest[:-1])
    for index in range(len(record)):
        changed = bytearray(record)
        changed[index] ^= 1
        with pytest.raises(SealError):
            box.codec.open_message(one.id, head + b'"sealed":"' + base64.b64encode(bytes(changed)) + b'"')


async def test_nothing_that_stays_in_clear_of_a_sealed_message_can_be_changed(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    partition = await harness.partition(queue)
    box: Any = harness.store
    await box.codec.prepare(queue.id)
    item = PushItem(
        queue=queue.name,
        payload=b'"%b"' % CANARY.encode(),
        trace_id="0193f3a2-5b7a-7000-8000-000000000001",
        type="paid",
        headers={"amount": "10"},
        max_attempts=3,
        producer_sub="alice",
    )
    clear = pack("0193f3a2-5b7a-7000-8000-000000000002", "order-1", item)
    sealed = box.codec.seal_message(queue.id, partition.id, clear)
    assert box.codec.open_message(partition.id, sealed) == clear
    for before, after in (
        *((b'"amount":"10"', b'"amount":"99"'), (b'"type":"paid"', b'"type":"void"'), (b"order-1", b"order-2")),
        *((b'"maxAttempts":3', b'"maxAttempts":9'), (b'"alice"', b'"mallory"'), (b"0000001", b"0000003")),
        (b',"headers":{"amount":"10"}', b""),
    ):
        changed = sealed.replace(before, after)
        assert changed != sealed
        with pytest.raises(SealError):
            box.codec.open_message(partition.id, changed)


async def test_a_message_in_clear_is_not_believed_in_a_queue_that_is_always_sealed(harness: Harness) -> None:
    """Anybody with write access to the database could insert one.

    The operator's setting is not stored in the database.
    """
    await opened(harness, OLD)
    queue, other = await harness.queue("always"), await harness.queue("other")
    await harness.push(queue, ["in clear"])
    await harness.push(other, [CANARY])
    store = await opened(harness, OLD)
    store.codec.always = ("always*",)
    assert await harness.drain(other) == [CANARY]
    assert len(await harness.broker.pop(queue.name)) == 0
    fresh = await harness.queue("always_too")  # without the option
    await harness.push(fresh, [CANARY])
    assert all(CANARY.encode() not in body for body in await bodies(harness, fresh))
    assert await harness.drain(fresh) == [CANARY]


async def test_a_dead_letter_in_clear_is_not_believed_in_a_queue_that_is_always_sealed(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await harness.queue("always", retry_limit=0)
    await harness.push(queue, ["in clear"])
    await harness.broker.ack(await harness.broker.pop(queue.name), "failed", error="no")
    store = await opened(harness, OLD)
    store.codec.always = ("always*",)
    await harness.push(queue, [CANARY])
    await harness.broker.ack(await harness.broker.pop(queue.name), "failed", error="no")
    sealed, planted = await harness.broker.dead_letters.page(queue.name)
    assert (sealed.data, sealed.locked) == (CANARY, None)
    assert (planted.data, planted.trace_id, planted.producer_sub) == (None, None, None)
    assert planted.locked is not None
    assert "in clear in a queue that is always sealed: it is not believed" in planted.locked
    assert await harness.broker.dead_letters.get(queue.name, planted.id) == planted
    for payload in (None, b'"another"'):
        with pytest.raises(SealError, match="not believed"):
            await harness.broker.dead_letters.replay(queue.name, DeadFilter(ids=[planted.id]), payload=payload)
    assert await harness.broker.dead_letters.replay(queue.name, DeadFilter(ids=[sealed.id]))
    # It is not forwarded either, and does not delay readable ones.
    target, partition = harness.name("dead"), await harness.partition(queue)
    await harness.broker.queues.configure(queue.name, retry_limit=0, dead_letter_queue=target)
    marked = "UPDATE fairlane.dead_letters SET forward_at = failed_at WHERE partition_id = $1"
    await harness.backend.sql(marked, partition.id.id)
    await store.dead_letters.forward()
    forwarded = [one.data["original_message"] for one in await harness.broker.pop(target, batch=10)]
    assert forwarded == [CANARY]
    assert await harness.broker.dead_letters.purge(queue.name, DeadFilter(ids=[planted.id])) == 1


async def test_an_operation_cannot_take_anothers_place(harness: Harness) -> None:
    await no_operations(harness)
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    one, other = await enqueue(harness, queue, ["one"]), await enqueue(harness, queue, ["other"])
    box: Any = harness.store
    sealed = await box.codec.seal_operation(one)
    assert (await box.codec.open_operation(sealed)).payload == one.payload
    with pytest.raises(SealError):
        await box.codec.open_operation(msgspec.structs.replace(sealed, id=other.id))
    await work_off(harness, queue)
    assert await harness.drain(queue) == ["one", "other"]


async def test_a_replay_into_a_queue_that_was_encrypted_meanwhile_is_sealed(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await harness.queue("secrets", retry_limit=0)
    group = await harness.group(queue)
    await harness.push(queue, [CANARY])
    await harness.nack(await harness.pop(queue, group))
    queue = await harness.configure(queue, encryption_enabled=True, retry_limit=0)
    assert len(await harness.store.dead_letters.replay(queue.id, DeadFilter())) == 1
    first, *again = await bodies(harness, queue)
    assert CANARY.encode() in first
    assert again
    assert not any(CANARY.encode() in body for body in again)
    assert (await harness.pop(queue, group)).data == [CANARY]


async def test_dead_letters_and_results_are_sealed_too_and_replays_stay_so(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness, retry_limit=0)
    group = await harness.group(queue)
    partition = await harness.partition(queue)
    await harness.push(queue, [CANARY], ids=["the id"])
    await harness.nack(await harness.pop(queue, group))
    [letter] = await harness.store.dead_letters.page(queue.id, DeadFilter())
    assert CANARY.encode() in letter.message
    assert len(await harness.store.dead_letters.replay(queue.id, DeadFilter())) == 1
    taken = await harness.pop(queue, group)
    assert taken.data == [CANARY]
    position = taken.lane.first
    await harness.apply(harness.ordered_ack(taken, taken.lane.upto, results=[(position, f'"{CANARY}"'.encode())]))
    assert await harness.store.groups.result(group.id, partition.id, position) == f'"{CANARY}"'.encode()
    for table, column in (("dead_letters", "message"), ("results", "result"), ("segments", "body")):
        rows = await harness.backend.sql(
            f"SELECT {column} FROM fairlane.{table} WHERE partition_id = $1",
            partition.id.id,
        )
        assert rows
        assert all(CANARY.encode() not in bytes(row[0]) for row in rows), table


async def test_keys_go_with_their_queue(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    await harness.push(queue, [1])
    assert await harness.store.data_keys.of_queue(queue.id) != []
    await harness.store.queues.delete(queue.tenant, queue.name)
    assert await harness.store.data_keys.of_queue(queue.id) == []


async def test_transactions_seal_what_they_push(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    broker: Broker = harness.broker
    async with broker.transaction() as transaction:
        transaction.push(queue.name, CANARY)
    assert all(CANARY.encode() not in body for body in await bodies(harness, queue))
    assert [one.data for one in await broker.pop(queue.name)] == [CANARY]
    page = await broker._engine.store.dead_letters.page(queue.id, DeadFilter())
    assert page == []


async def test_operations_that_wait_are_sealed_and_applied_sealed(harness: Harness) -> None:
    await no_operations(harness)
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    new = await enqueue(harness, queue, [CANARY])
    partition = await harness.partition(queue)
    [row] = await harness.backend.sql(
        "SELECT payload FROM fairlane.operations WHERE partition_id = $1", partition.id.id
    )
    assert CANARY.encode() not in bytes(row[0])
    found = await harness.store.operations.get(queue.tenant, new.id)
    assert found is not None
    assert CANARY.encode() in found.payload
    await opened(harness)
    assert await harness.store.operations.claim("a broker without the key") == []
    harness.clock.advance(60)
    await opened(harness, OLD)
    await work_off(harness, queue)
    assert all(CANARY.encode() not in body for body in await bodies(harness, queue))
    assert await harness.drain(queue) == [CANARY]


async def test_what_waits_for_its_time_waits_sealed(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    partition = await harness.partition(queue)
    part = ScheduledSlice(harness.slice(queue, partition, [CANARY]), partition.name, [None], [1000])
    [kept] = await harness.store.scheduled.add([part])
    assert isinstance(kept, Added)
    waiting = (
        "SELECT m.body FROM fairlane.scheduled_segments b JOIN fairlane.scheduled_messages m ON m.id = b.id "
        "WHERE b.partition_id = $1"
    )
    rows = await harness.backend.sql(waiting, partition.id.id)
    assert [CANARY.encode() in bytes(row[0]) for row in rows] == [False]
    harness.clock.advance(1)
    assert (await harness.store.scheduled.append_due()).queues[queue.id] == 1
    assert (await harness.pop(queue)).data == [CANARY]


async def test_a_letter_of_a_sealed_queue_is_sealed_in_the_queue_named_for_it_too(harness: Harness) -> None:
    await opened(harness, OLD)
    graves = await harness.queue("graves")
    queue = await sealed_queue(harness, retry_limit=0, dead_letter_queue=graves.name)
    group = await harness.group(queue)
    await harness.push(queue, [{"secret": CANARY}])
    await harness.nack(await harness.pop(queue, group))
    await opened(harness)
    assert (await harness.store.dead_letters.forward()).queues.get(graves.id) is None, "this broker has no key"
    harness.clock.advance(10)
    await opened(harness, OLD)
    assert (await harness.store.dead_letters.forward()).queues[graves.id] == 1
    for body in await bodies(harness, graves):
        assert CANARY.encode() not in body
    [told] = (await harness.pop(graves)).data
    assert told["original_message"] == {"secret": CANARY}


async def test_a_message_is_shown_as_encrypted_where_it_lies_sealed(harness: Harness) -> None:
    await opened(harness, OLD)
    for queue, sealed in ((await sealed_queue(harness), True), (await harness.queue(), False)):
        pushed = await harness.broker.push(queue.name, CANARY)
        shown = await harness.broker.messages.get(str(pushed.partition), pushed.transaction_id)
        assert (shown.data, shown.is_encrypted) == (CANARY, sealed)


async def test_a_deleted_queue_for_sealed_dead_letters_is_encrypted_when_it_is_made_again(harness: Harness) -> None:
    await opened(harness, OLD)
    target = harness.name("graves")
    queue = await sealed_queue(harness, retry_limit=0, dead_letter_queue=target)
    group = await harness.group(queue)
    await harness.push(queue, [{"secret": CANARY}])
    await harness.nack(await harness.pop(queue, group))
    await harness.broker.queues.delete(target)
    await harness.store.dead_letters.forward()
    assert (await harness.broker.queues.existing(target)).options.encryption_enabled


async def test_what_handlers_and_pollers_leave_beside_the_log_of_a_sealed_queue_says_nothing(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    partition, tenant, key = (await harness.partition(queue)).id, queue.tenant, harness.name("k")
    effect = msgspec.json.encode({"secret": CANARY})
    sources, name = harness.broker.sources, harness.name("source")
    leased = await sources.lease(name, seconds=60)
    record = SourceRecord(key="1", hash="h", data=msgspec.Raw(effect), partition=DEFAULT_PARTITION)
    page = SourcePage(token=leased.token, before="", revision="r", queue=queue.name, cursor=None, records=[record])
    assert (await sources.commit(name, page)).created == 1
    for body in await bodies(harness, queue):
        assert CANARY.encode() not in body
    [event] = (await harness.pop(queue)).data
    assert event["record"] == {"secret": CANARY}
    copies = await harness.backend.sql("SELECT data FROM fairlane.shadow_copies")
    assert copies
    assert not any(CANARY.encode() in bytes(row[0]) for row in copies)
    fields: dict[str, Any] = {"token": leased.token, "queue": queue.name, "sweep": True, "begin": True, "last": True}
    gone = SourcePage(before="r", revision="s", **fields)
    assert (await sources.commit(name, gone)).deleted == 1
    [deleted] = messages(await harness.store.messages.read(partition, 1, 2), 1, 2)
    event = msgspec.json.decode(deleted.raw)
    assert (event["event"], event["record"]) == ("deleted", {"secret": CANARY})
    assert await harness.store.effects.keep(tenant, key, partition, effect, seconds=60) == effect
    assert await harness.store.effects.get(tenant, key, partition) == effect
    rows = await harness.backend.sql("SELECT value FROM fairlane.effects WHERE key = $1", key)
    assert CANARY.encode() not in bytes(rows[0][0])


async def test_a_record_whose_key_went_with_its_queue_is_deleted_without_its_content(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    sources, name = harness.broker.sources, harness.name("source")
    leased = await sources.lease(name, seconds=60)
    record = SourceRecord(key="1", hash="h", data=msgspec.Raw(b'{"a":1}'))
    await sources.commit(
        name, SourcePage(token=leased.token, before="", revision="r", queue=queue.name, records=[record])
    )
    await harness.broker.queues.delete(queue.name)
    await opened(harness, OLD)
    fields: dict[str, Any] = {"token": leased.token, "queue": queue.name, "sweep": True, "begin": True, "last": True}
    assert (await harness.broker.sources.commit(name, SourcePage(before="r", revision="s", **fields))).deleted == 1
    [message] = await harness.broker.pop(queue.name)
    assert msgspec.json.decode(message.raw)["record"] is None
