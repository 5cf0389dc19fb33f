"""Traces: notes on the work on a message, found by message and by name."""

from __future__ import annotations

from fairlane.model.ids import PartitionId, uuid7
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.queue import Queue
from fairlane.queen.model.trace import Trace
from fairlane.queen.store.traces import StoredTraces
from tests.conformance.harness import Harness


def traces_of(harness: Harness) -> StoredTraces:
    return harness.store.family(StoredTraces)


async def note(
    harness: Harness, queue: Queue, transaction_id: str, data: bytes = b"{}", *names: str, partition: str = "Default"
) -> Trace:
    lane = await harness.partition(queue, partition)
    trace = Trace(
        id=uuid7(), partition=lane.id, transaction_id=transaction_id, data=data, group="readers", names=list(names)
    )
    assert await traces_of(harness).add(trace)
    return trace


async def test_a_trace_is_kept_as_it_came(harness: Harness) -> None:
    queue = await harness.queue()
    data = b'{"b":1, "a":"\\u0000 \xf0\x9f\x9a\x80"}'
    trace = await note(harness, queue, 'id "with" \U0001f680', data, "n/1 %", "n2")
    [kept] = await traces_of(harness).of_message(trace.partition, trace.transaction_id)
    assert kept.data == data
    assert (kept.id, kept.group, kept.event_type, kept.names) == (trace.id, "readers", "info", ["n/1 %", "n2"])
    assert (kept.partition, kept.transaction_id, kept.created_at) == (
        trace.partition,
        trace.transaction_id,
        harness.clock(),
    )


async def test_the_traces_of_a_message_come_oldest_first_and_no_others(harness: Harness) -> None:
    queue = await harness.queue()
    expected = []
    for _ in range(3):
        harness.clock.advance(1)
        expected.append((await note(harness, queue, "a")).id)
        await note(harness, queue, "b")
        await note(harness, queue, "a", partition="other")
    partition = await harness.partition(queue)
    found = await traces_of(harness).of_message(partition.id, "a")
    assert [trace.id for trace in found] == expected
    assert await traces_of(harness).of_message(partition.id, "nobody") == []
    assert len(await traces_of(harness).of_message(partition.id, "a", limit=2)) == 2


async def test_traces_are_found_by_name_over_queues_and_in_pages(harness: Harness) -> None:
    name = harness.name("flow")
    expected = []
    for number in range(7):
        harness.clock.advance(1)
        queue = await harness.queue()
        trace = await note(harness, queue, f"t{number}", b"1", name, partition=f"p{number}")
        expected.append(trace.id)
        await note(harness, queue, "other", b"1", f"{name} not")
    traces = traces_of(harness)
    assert await traces.count_named(DEFAULT_TENANT, name) == 7
    assert await traces.count_named("another tenant", name) == 0
    paged: list[str] = []
    while page := await traces.named(DEFAULT_TENANT, name, limit=3, offset=len(paged)):
        paged += [trace.id for trace in page]
    assert paged == expected
    [first] = await traces.named(DEFAULT_TENANT, name, limit=1)
    assert (first.transaction_id, first.names) == ("t0", [name])


async def test_names_are_listed_latest_seen_first_with_their_counts(harness: Harness) -> None:
    queue = await harness.queue()
    before = await traces_of(harness).count_names(DEFAULT_TENANT)
    one, two = harness.name("one"), harness.name("two")
    harness.clock.advance(1_000_000)
    await note(harness, queue, "a", b"1", one, two)
    harness.clock.advance(1)
    await note(harness, queue, "a", b"2", one)
    at = harness.clock.advance(1)
    await note(harness, queue, "b", b"3", one)
    listed = await traces_of(harness).names(DEFAULT_TENANT, limit=2)
    assert [(each.trace_name, each.trace_count, each.message_count) for each in listed] == [(one, 3, 2), (two, 1, 1)]
    assert listed[0].last_seen == at
    assert await traces_of(harness).count_names(DEFAULT_TENANT) == before + 2
    assert (await traces_of(harness).names(DEFAULT_TENANT, limit=1, offset=1))[0].trace_name == two


async def test_adding_a_trace_twice_changes_nothing(harness: Harness) -> None:
    queue = await harness.queue()
    name = harness.name("once")
    trace = await note(harness, queue, "a", b"1", name)
    harness.clock.advance(1)
    assert await traces_of(harness).add(trace)
    assert len(await traces_of(harness).of_message(trace.partition, "a")) == 1
    assert await traces_of(harness).count_named(DEFAULT_TENANT, name) == 1


async def test_a_partition_that_is_gone_takes_no_trace_and_keeps_none(harness: Harness) -> None:
    queue = await harness.queue()
    name = harness.name("gone")
    trace = await note(harness, queue, "a", b"1", name)
    await harness.store.queues.delete(queue.tenant, queue.name)
    assert not await traces_of(harness).add(trace)
    assert await traces_of(harness).of_message(trace.partition, "a") == []
    assert await traces_of(harness).count_named(DEFAULT_TENANT, name) == 0
    nowhere = Trace(id=uuid7(), partition=PartitionId(0, 2**40), transaction_id="x", data=b"1")
    assert not await traces_of(harness).add(nowhere)


async def test_a_deleted_message_takes_its_traces_along(harness: Harness) -> None:
    queue = await harness.queue()
    await harness.push(queue, [1, 2], ids=["a", "b"])
    name = harness.name("flow")
    trace = await note(harness, queue, "a", b"1", name)
    await note(harness, queue, "b", b"1", name)
    await harness.store.browse.delete(trace.partition, 0)
    assert await traces_of(harness).of_message(trace.partition, "a") == []
    assert [each.transaction_id for each in await traces_of(harness).named(DEFAULT_TENANT, name)] == ["b"]
