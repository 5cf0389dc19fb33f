"""Push at the store: stored in commit order, and returned byte for byte."""

from __future__ import annotations

import msgspec
import pytest

from fairlane.errors import StoreCorrupt
from fairlane.model.ids import PartitionId
from fairlane.model.limits import BATCH_ITEMS_MAX, MESSAGE_BYTES_MAX, SEGMENT_BYTES_MAX
from fairlane.model.message import PushItem
from fairlane.model.segment import messages, pack
from fairlane.store.contract.values import Gone, Stored
from tests.conformance.harness import Harness

AWKWARD_PAYLOADS = [
    b"null",
    b'""',
    b"0",
    b"-0.0",
    b"1e400",
    b"123456789012345678901234567890.123456789012345678901234567890",
    b'{"b":1,"a":2,"b":3}',
    b'  {\t"spaced" :\n[ 1 ,2 ]\r}  ',
    rb'"\u0000 \ud83d\ude00 \/ \\"',
    '"😀 \u2028"'.encode(),
    b"[" * 100 + b"]" * 100,
    b'{"id":"x","transactionId":"y","data":1}',
    b'"},{\\"id\\":\\"forged\\""',
]


async def test_positions_run_from_zero_without_gaps(harness: Harness) -> None:
    queue = await harness.queue()
    firsts = [(await harness.push(queue, list(range(n)))).first for n in (1, 3, 2, 1)]
    assert firsts == [0, 1, 4, 6]
    [state] = await harness.store.statistics.partitions(queue.id)
    assert state.head == 7


async def test_messages_come_back_in_the_order_pushed(harness: Harness) -> None:
    queue = await harness.queue()
    for start in range(0, 50, 5):
        await harness.push(queue, list(range(start, start + 5)))
    assert await harness.drain(queue) == list(range(50))


async def test_slices_of_one_call_are_answered_in_its_order(harness: Harness) -> None:
    queue = await harness.queue()
    names = ["c", "a", "d", "b"]
    partitions = [await harness.partition(queue, name) for name in names]
    await harness.push(queue, [0], partition="d")
    results = await harness.store.messages.push(
        [harness.slice(queue, partition, [partition.name] * (index + 1)) for index, partition in enumerate(partitions)]
    )
    assert [result.first for result in results if isinstance(result, Stored)] == [0, 0, 1, 0]
    heads = {state.name: state.head for state in await harness.store.statistics.partitions(queue.id)}
    assert heads == {"c": 1, "a": 2, "d": 4, "b": 4}


async def test_an_empty_call_stores_nothing(harness: Harness) -> None:
    assert await harness.store.messages.push([]) == []


async def test_one_call_reaches_many_queues_and_partitions(harness: Harness) -> None:
    queues = [await harness.queue() for _ in range(3)]
    slices = []
    for queue in queues:
        for partition in await harness.store.queues.ensure_partitions(queue.id, [f"p{n}" for n in range(20)]):
            slices.append(harness.slice(queue, partition, [partition.name]))
    results = await harness.store.messages.push(slices)
    assert all(isinstance(result, Stored) for result in results)
    for queue in queues:
        assert sorted(await harness.drain(queue)) == sorted(f"p{n}" for n in range(20))


async def test_an_unknown_partition_is_reported_and_stores_nothing(harness: Harness) -> None:
    queue = await harness.queue()
    slice_ = harness.slice(queue, await harness.partition(queue), ["a"])
    slice_.partition = PartitionId(0, 2**62)
    assert await harness.store.messages.push([slice_]) == [Gone()]
    assert await harness.store.queues.depth(queue.id) == 0


async def test_payloads_are_given_back_byte_for_byte(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    slice_ = harness.slice(queue, partition, [None] * len(AWKWARD_PAYLOADS))
    slice_.fragments = [
        pack(harness.mint(), name, PushItem(queue=queue.name, payload=payload))
        for name, payload in zip(slice_.transaction_ids, AWKWARD_PAYLOADS, strict=True)
    ]
    await harness.store.messages.push([slice_])
    taken = await harness.pop(queue, batch=100)
    # White space around a JSON value is not part of the value, so it may be trimmed.
    assert [bytes(m.raw).strip() for m in taken.messages] == [p.strip() for p in AWKWARD_PAYLOADS]


async def test_type_headers_and_trace_are_kept(harness: Harness) -> None:
    queue = await harness.queue()
    item = PushItem(
        queue=queue.name,
        payload=b"1",
        trace_id="0190a5a5-0000-4000-8000-000000000001",
        type='order."created"',
        headers={"a": "", "ü": "😀\n"},
    )
    slice_ = harness.slice(queue, await harness.partition(queue), [1], ids=['quote " and \\'])
    slice_.fragments = [pack(message_id := harness.mint(), 'quote " and \\', item)]
    await harness.store.messages.push([slice_])
    [message] = (await harness.pop(queue)).messages
    assert (message.id, message.transaction_id) == (message_id, 'quote " and \\')
    assert (message.trace_id, message.type, message.headers) == (item.trace_id, item.type, item.headers)
    assert message.created_at == harness.clock()


async def test_time_in_a_partition_never_falls_though_the_clock_does(harness: Harness) -> None:
    queue = await harness.queue()
    stored = []
    for step in (10, -5, -3600, 1, 7200):
        harness.clock.advance(step)
        stored.append(await harness.push(queue, [step]))
    times = [result.created_at for result in stored]
    assert times == sorted(times)
    assert [result.first for result in stored] == [0, 1, 2, 3, 4]
    [state] = await harness.store.statistics.partitions(queue.id)
    assert state.last_at == times[-1] == harness.clock()
    assert await harness.drain(queue) == [10, -5, -3600, 1, 7200]


async def test_a_push_makes_an_empty_lane_ready(harness: Harness) -> None:
    queue = await harness.queue()
    group = await harness.group(queue)
    for number in range(3):
        assert not await harness.pop(queue, group)
        await harness.push(queue, [number])
        assert await harness.next_ready_at(group.id) is not None
        assert await harness.drain(queue, group) == [number]
        assert await harness.next_ready_at(group.id) is None


async def test_the_largest_batch_is_one_slice(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, list(range(BATCH_ITEMS_MAX)))
    taken = await harness.pop(queue, batch=BATCH_ITEMS_MAX)
    assert taken.data == list(range(BATCH_ITEMS_MAX))
    assert (await harness.ack(taken)).released


async def test_the_largest_message_fits(harness: Harness) -> None:
    queue = await harness.queue()
    text = "x" * (MESSAGE_BYTES_MAX - 2)
    await harness.push(queue, ["before", text, "after"])
    assert await harness.drain(queue) == ["before", text, "after"]


async def test_a_long_slice_is_cut_so_that_a_read_loads_little(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    texts = [f"{n:04}" + "x" * 2000 for n in range(1200)]
    await harness.push(queue, texts)
    [segment] = await harness.store.messages.read(partition.id, 700, 701)
    assert len(segment.body) <= SEGMENT_BYTES_MAX
    assert await harness.drain(queue) == texts


async def test_a_range_is_read_as_far_as_it_is_stored(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    for start in range(0, 12, 3):
        await harness.push(queue, [start, start + 1, start + 2])

    async def read(first: int, upto: int) -> list[int]:
        segments = await harness.store.messages.read(partition.id, first, upto)
        return [msgspec.json.decode(message.raw) for message in messages(segments, first, upto)]

    assert await read(0, 12) == list(range(12))
    assert await read(4, 8) == [4, 5, 6, 7]
    assert await read(5, 6) == [5]
    assert await read(10, 99) == [10, 11]
    assert await read(12, 99) == []
    assert await read(3, 3) == []
    assert await harness.store.messages.read(PartitionId(0, 2**62), 0, 9) == []


async def test_a_message_is_found_by_its_id(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    fresh, minted = harness.mint(), harness.slice(queue, partition, ["m"])
    await harness.push(queue, ["a", "b"], ids=["text id", fresh])
    await harness.store.messages.push([minted])
    find = harness.store.messages.find
    assert await find(partition.id, "text id") == 0
    assert await find(partition.id, fresh) == 1
    assert await find(partition.id, minted.transaction_ids[0]) == 2
    assert await find(partition.id, "text ID") is None
    assert await find(partition.id, harness.mint()) is None
    other = await harness.partition(queue, "other")
    assert await find(other.id, "text id") is None


async def test_rotten_bytes_are_never_delivered(harness: Harness) -> None:
    queue = await harness.queue()
    partition = await harness.partition(queue)
    await harness.push(queue, ["sound"])
    await harness.push(queue, ["payload"])
    [segment] = await harness.store.messages.read(partition.id, 1, 2)
    rotten = segment.body.replace(b"payload", b"paymoad")
    await harness.backend.sql(
        "UPDATE fairlane.segments SET body = $1 WHERE partition_id = $2 AND first_pos = 1",
        rotten,
        partition.id.id,
    )
    [segment] = await harness.store.messages.read(partition.id, 1, 2)
    with pytest.raises(StoreCorrupt, match="checksum"):
        segment.fragments(1, 2)
    assert (await harness.pop(queue, batch=1)).data == ["sound"]


async def test_people_can_read_the_messages_with_plain_sql(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [{"n": 1}, {"n": 2}], partition="a", ids=["first", "second"])
    await harness.push(queue, ["three"], partition="b", ids=["third"])
    rows = await harness.backend.sql(
        "SELECT partition, position, transaction_id FROM fairlane.messages"
        " WHERE queue = $1 ORDER BY partition, position",
        queue.name,
    )
    assert [tuple(row) for row in rows] == [("a", 0, "first"), ("a", 1, "second"), ("b", 0, "third")]
