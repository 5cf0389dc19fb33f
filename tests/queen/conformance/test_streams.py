"""Streams: queries, their state, and cycles that commit state, pushes and acks together."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest

from fairlane.errors import NotFound, TransactionRefused
from fairlane.model.ids import PartitionId
from fairlane.model.names import DEFAULT_TENANT
from fairlane.queen.model.stream import StateChange, StateFilter, StateOp, StreamQuery
from fairlane.queen.store.streams import StoredStreams
from fairlane.store.contract.values import DeadFilter, Nack, Stored
from tests.conformance.harness import Harness

ANY = StateFilter()


def streams_of(harness: Harness) -> StoredStreams:
    return harness.store.family(StoredStreams)


async def register(harness: Harness, name: str = "", hash_: str = "h1", *, reset: bool = False) -> StreamQuery:
    query = StreamQuery(
        id=uuid4(), name=name or harness.name("query"), source_queue="in", sink_queue=None, config_hash=hash_
    )
    return (await streams_of(harness).register(DEFAULT_TENANT, query, reset=reset)).query


async def put(harness: Harness, query: UUID, partition: PartitionId, **values: bytes | None) -> None:
    ops = [StateOp(key, value) for key, value in values.items()]
    await streams_of(harness).cycle(StateChange(query, partition, ops), [], [])


async def state(harness: Harness, query: UUID, partition: PartitionId, where: StateFilter = ANY) -> dict[str, bytes]:
    rows = await streams_of(harness).state(query, partition, where)
    assert [row.key.encode() for row in rows] == sorted(row.key.encode() for row in rows)
    return {row.key: bytes(row.value) for row in rows}


async def test_a_query_is_made_once_and_then_found_again(harness: Harness) -> None:
    streams = streams_of(harness)
    wanted = StreamQuery(id=uuid4(), name=harness.name("q"), source_queue="a", sink_queue=None, config_hash="h")
    first = await streams.register(DEFAULT_TENANT, wanted, reset=False)
    assert (first.query, first.fresh, first.reset) == (wanted, True, False)
    changed = StreamQuery(id=uuid4(), name=wanted.name, source_queue="b", sink_queue="c", config_hash="h")
    second = await streams.register(DEFAULT_TENANT, changed, reset=True)
    assert (second.fresh, second.reset) == (False, False)
    assert (second.query.id, second.query.source_queue, second.query.sink_queue) == (wanted.id, "b", "c")
    assert await streams.get(DEFAULT_TENANT, wanted.id) == second.query
    assert await streams.get(DEFAULT_TENANT, changed.id) is None
    assert await streams.get("another tenant", wanted.id) is None


async def test_another_hash_is_refused_unless_the_state_may_go(harness: Harness) -> None:
    queue = await harness.queue()
    partition = (await harness.partition(queue)).id
    query = await register(harness)
    await put(harness, query.id, partition, key=b"1")
    other = StreamQuery(id=uuid4(), name=query.name, source_queue="x", sink_queue=None, config_hash="h2")
    refused = await streams_of(harness).register(DEFAULT_TENANT, other, reset=False)
    assert (refused.query, refused.fresh, refused.reset) == (query, False, False)
    assert await state(harness, query.id, partition) == {"key": b"1"}
    reset = await streams_of(harness).register(DEFAULT_TENANT, other, reset=True)
    assert (reset.fresh, reset.reset) == (False, True)
    assert (reset.query.id, reset.query.config_hash) == (query.id, "h2")
    assert await state(harness, query.id, partition) == {}


async def test_state_is_kept_for_each_query_and_partition(harness: Harness) -> None:
    queue = await harness.queue()
    a, b = await harness.store.queues.ensure_partitions(queue.id, ["a", "b"])
    one, two = await register(harness), await register(harness)
    await put(harness, one.id, a.id, k=b"1")
    await put(harness, one.id, b.id, k=b"2")
    await put(harness, two.id, a.id, k=b"3")
    assert await state(harness, one.id, a.id) == {"k": b"1"}
    assert await state(harness, one.id, b.id) == {"k": b"2"}
    assert await state(harness, two.id, a.id) == {"k": b"3"}
    await put(harness, one.id, a.id, k=None)
    assert await state(harness, one.id, a.id) == {}
    assert await state(harness, two.id, a.id) == {"k": b"3"}


async def test_the_last_of_several_ops_on_a_key_counts(harness: Harness) -> None:
    queue = await harness.queue()
    partition = (await harness.partition(queue)).id
    query = await register(harness)
    ops = [
        StateOp("a", b"1"),
        StateOp("b", b"1"),
        StateOp("a", b"2"),
        StateOp("b", None),
        StateOp("c", None),
        StateOp("c", b"3"),
    ]
    await streams_of(harness).cycle(StateChange(query.id, partition, ops), [], [])
    assert await state(harness, query.id, partition) == {"a": b"2", "c": b"3"}
    at = harness.clock.advance(1)
    await put(harness, query.id, partition, a=b"4")
    [row] = await streams_of(harness).state(query.id, partition, StateFilter(keys=["a"]))
    assert (bytes(row.value), row.updated_at) == (b"4", at)


async def test_state_is_found_by_keys_prefix_and_ripeness_together(harness: Harness) -> None:
    queue = await harness.queue()
    partition = (await harness.partition(queue)).id
    query = await register(harness)
    ops = [
        StateOp("w\x1f1", b'{"windowEnd":10}', 10.0),
        StateOp("w\x1f2", b'{"windowEnd":20}', 20.0),
        StateOp("w\x1f3", b"{}"),
        StateOp("w%", b"1", 1.0),
        StateOp("W\x1f1", b"1", 1.0),
        StateOp("__wm__", b"5"),
        StateOp("\U0001f680", b"1"),
    ]
    await streams_of(harness).cycle(StateChange(query.id, partition, ops), [], [])
    assert len(await state(harness, query.id, partition)) == 7
    assert set(await state(harness, query.id, partition, StateFilter(keys=["__wm__", "none"]))) == {"__wm__"}
    assert set(await state(harness, query.id, partition, StateFilter(prefix="w\x1f"))) == {"w\x1f1", "w\x1f2", "w\x1f3"}
    assert set(await state(harness, query.id, partition, StateFilter(prefix="w%"))) == {"w%"}
    ripe = StateFilter(prefix="w", ripe_until=10.0)
    assert set(await state(harness, query.id, partition, ripe)) == {"w\x1f1", "w%"}
    assert set(await state(harness, query.id, partition, StateFilter(keys=["w%", "w\x1f2"], ripe_until=15))) == {"w%"}
    assert await state(harness, query.id, partition, StateFilter(keys=[])) == {}


async def test_a_cycle_commits_state_push_and_ack_together(harness: Harness) -> None:
    source, sink = await harness.queue(), await harness.queue()
    partition, out = await harness.partition(source), await harness.partition(sink)
    query = await register(harness)
    await harness.push(source, [1, 2, 3])
    taken = await harness.pop(source)
    change = StateChange(query.id, partition.id, [StateOp("sum", b"6")])
    acked, pushed = await streams_of(harness).cycle(
        change, [harness.ordered_ack(taken, 3)], [harness.slice(sink, out, ["a", "b", "c"])]
    )
    assert (acked[0].state, acked[0].after, acked[0].released) == ("ok", 3, True)
    assert isinstance(pushed[0], Stored)
    assert await state(harness, query.id, partition.id) == {"sum": b"6"}
    assert await harness.drain(sink) == ["a", "b", "c"]
    assert not await harness.pop(source)


async def test_a_cycle_that_is_repeated_leaves_the_state_as_it_is(harness: Harness) -> None:
    """A later cycle has changed the state meanwhile."""
    source = await harness.queue()
    partition, query = await harness.partition(source), await register(harness)
    await harness.push(source, [1, 2])
    taken = await harness.pop(source)
    cycle = streams_of(harness).cycle
    for upto in (1, 2, 1):
        change = StateChange(query.id, partition.id, [StateOp("sum", b"%d" % upto)])
        await cycle(change, [harness.ordered_ack(taken, upto)], [])
    assert await state(harness, query.id, partition.id) == {"sum": b"2"}


async def test_a_cycle_that_is_refused_changes_nothing(harness: Harness) -> None:
    source, sink = await harness.queue(lease_seconds=5), await harness.queue()
    partition, out = await harness.partition(source), await harness.partition(sink)
    query = await register(harness)
    await put(harness, query.id, partition.id, sum=b"0")
    await harness.push(source, [1])
    taken = await harness.pop(source)
    harness.clock.advance(6)
    change = StateChange(query.id, partition.id, [StateOp("sum", b"1"), StateOp("more", b"1")])
    acked, _ = await streams_of(harness).cycle(
        change, [harness.ordered_ack(taken, 1)], [harness.slice(sink, out, ["a"])]
    )
    assert acked[0].state == "lost"
    assert await state(harness, query.id, partition.id) == {"sum": b"0"}
    assert await harness.drain(sink) == []


async def test_a_cycle_whose_push_does_not_fit_changes_nothing(harness: Harness) -> None:
    source, sink = await harness.queue(), await harness.queue(max_size=1)
    partition, out = await harness.partition(source), await harness.partition(sink)
    query = await register(harness)
    await harness.push(source, [1])
    taken = await harness.pop(source)
    change = StateChange(query.id, partition.id, [StateOp("k", b"1")])
    _, pushed = await streams_of(harness).cycle(
        change, [harness.ordered_ack(taken, 1)], [harness.slice(sink, out, ["a", "b"])]
    )
    assert not isinstance(pushed[0], Stored)
    assert await state(harness, query.id, partition.id) == {}
    assert (await harness.lane(taken.group)).committed == 0


async def test_a_part_of_a_batch_is_acked_and_the_rest_released_or_kept(harness: Harness) -> None:
    source = await harness.queue(lease_seconds=5)
    partition = await harness.partition(source)
    query = await register(harness)
    await harness.push(source, [1, 2, 3, 4])
    taken = await harness.pop(source)
    change = StateChange(query.id, partition.id, [StateOp("n", b"1")])
    await streams_of(harness).cycle(change, [harness.ordered_ack(taken, 1)], [])
    assert not await harness.pop(source), "the lease goes on"
    release = Nack(2, charge=False, error="released", delay_ms=0)
    [acked], _ = await streams_of(harness).cycle(change, [harness.ordered_ack(taken, 2, nack=release)], [])
    assert (acked.after, acked.released) == (2, True)
    assert (await harness.pop(source)).data == [3, 4]


@pytest.mark.parametrize("ordering", ["per_key", "unordered"])
async def test_what_a_consumer_holds_is_not_closed_beside_it(harness: Harness, ordering: str) -> None:
    """A stream that flushes idle windows reads and deletes them without an ack.

    It must not do so while a consumer of the stream holds the partition and may close the same windows.
    """
    source, sink = await harness.queue(lease_seconds=5, ordering=ordering), await harness.queue()
    partition, out = await harness.partition(source), await harness.partition(sink)
    group, other = await harness.group(source, "streams.s"), await harness.group(source, "other")
    query = await register(harness)
    await streams_of(harness).cycle(StateChange(query.id, partition.id, [StateOp("w", b"1", 1.0)]), [], [])
    await harness.push(source, [1])
    ripe = StateFilter(ripe_until=2.0, idle_group="streams.s")
    flush = StateChange(query.id, partition.id, [StateOp("w", None)], idle_group="streams.s")
    item = harness.slice(sink, out, ["closed"])

    await harness.pop(source, other)
    assert await state(harness, query.id, partition.id, ripe) == {"w": b"1"}, (
        "another group's lease is none of its business"
    )
    taken = await harness.pop(source, group)
    assert await state(harness, query.id, partition.id, ripe) == {}
    assert await state(harness, query.id, partition.id, StateFilter(ripe_until=2.0)) == {"w": b"1"}
    with pytest.raises(TransactionRefused, match="holds the partition"):
        await streams_of(harness).cycle(flush, [], [item])
    assert await harness.drain(sink) == []
    await harness.store.messages.release(taken.lease)
    assert await state(harness, query.id, partition.id, ripe) == {"w": b"1"}
    await streams_of(harness).cycle(flush, [], [item])
    assert await harness.drain(sink) == ["closed"]


async def test_what_another_cycle_closed_meanwhile_is_not_closed_again(harness: Harness) -> None:
    """The flush read the state before a consumer took the partition, and arrives after it left.

    Or it repeats itself because its answer was lost.
    """
    source, sink = await harness.queue(), await harness.queue()
    partition, out = await harness.partition(source), await harness.partition(sink)
    query = await register(harness)
    await put(harness, query.id, partition.id, w=b"1", x=b"1")
    flush = StateChange(query.id, partition.id, [StateOp("x", None), StateOp("w", None)], idle_group="streams.s")
    await put(harness, query.id, partition.id, w=None)
    with pytest.raises(TransactionRefused, match="is gone"):
        await streams_of(harness).cycle(flush, [], [harness.slice(sink, out, ["closed twice"])])
    assert await harness.drain(sink) == []
    assert await state(harness, query.id, partition.id) == {"x": b"1"}


async def test_a_flush_keeps_consumers_from_the_lane_until_it_is_over(harness: Harness) -> None:
    source = await harness.queue()
    partition = await harness.partition(source)
    group = await harness.group(source, "streams.s")
    query = await register(harness)
    second = await harness.open_second()
    await harness.push(source, [1])
    for number in range(10):
        await put(harness, query.id, partition.id, w=b"1")
        flush = StateChange(query.id, partition.id, [StateOp("w", None)], idle_group="streams.s")
        flushed, taken = await asyncio.gather(
            streams_of(harness).cycle(flush, [], []),
            harness.pop(source, group, store=second),
            return_exceptions=True,
        )
        assert not isinstance(taken, BaseException)
        seen = await state(harness, query.id, partition.id)
        # The consumer sees the state after the flush, or the flush was refused.
        assert not taken or isinstance(flushed, TransactionRefused) or seen == {}, number
        if taken:
            await harness.store.messages.release(taken.lease)


async def test_a_query_or_a_partition_that_is_gone_has_no_cycle(harness: Harness) -> None:
    queue = await harness.queue()
    partition = (await harness.partition(queue)).id
    query = await register(harness)
    op = [StateOp("k", b"1")]
    with pytest.raises(NotFound):
        await streams_of(harness).cycle(StateChange(uuid4(), partition, op), [], [])
    with pytest.raises(NotFound):
        await streams_of(harness).cycle(StateChange(query.id, PartitionId(0, 2**40), op), [], [])


async def test_a_deleted_queue_takes_its_state_along(harness: Harness) -> None:
    queue = await harness.queue()
    partition = (await harness.partition(queue)).id
    query = await register(harness)
    await put(harness, query.id, partition, k=b"1")
    await harness.store.queues.delete(queue.tenant, queue.name)
    assert await state(harness, query.id, partition) == {}


async def test_cycles_of_two_brokers_come_one_after_another(harness: Harness) -> None:
    queue = await harness.queue()
    partition = (await harness.partition(queue)).id
    query = await register(harness)
    second = await harness.open_second()
    ops = [StateOp(f"k{number}", b"x" * 10) for number in range(20)]

    async def cycles(streams: object, order: list[StateOp]) -> None:
        for _ in range(10):
            await streams.cycle(StateChange(query.id, partition, order), [], [])  # type: ignore[attr-defined]

    await asyncio.gather(cycles(streams_of(harness), ops), cycles(second.family(StoredStreams), ops[::-1]))
    assert len(await state(harness, query.id, partition)) == 20


async def test_a_large_state_is_read_in_pages(harness: Harness) -> None:
    queue = await harness.queue()
    partition = (await harness.partition(queue)).id
    query = await register(harness)
    keys = sorted((f"{letter}\x1f{number}" for letter in "aZ\U0001f680é" for number in range(5)), key=str.encode)
    await put(harness, query.id, partition, **dict.fromkeys(keys, b"1"))
    paged: list[str] = []
    while page := await streams_of(harness).state(
        query.id, partition, StateFilter(after=paged[-1] if paged else ""), limit=3
    ):
        paged += [row.key for row in page]
    assert paged == keys


async def test_a_lease_that_a_stream_lets_run_out_is_no_failure(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, lease_seconds=5)
    group = await harness.group(queue, "streams.limiter")
    await harness.push(queue, [1, 2, 3])
    for _ in range(3):
        taken = await harness.pop(queue, group, forgiving=True)
        assert (taken.data, taken.lane.attempts) == ([1, 2, 3], 0)
        harness.clock.advance(5)
    assert (await harness.lane(group)).attempts == 0
    assert await harness.store.dead_letters.count(queue.id, DeadFilter()) == 0


async def test_a_lease_that_another_group_lets_run_out_is_one(harness: Harness) -> None:
    queue = await harness.queue(retry_limit=0, lease_seconds=5)
    await harness.push(queue, [1])
    for group, delivered in (("streams.limiter", 3), ("workers", 1)):
        seen = 0
        for _ in range(3):
            seen += len(await harness.broker.pop(queue.name, group=group))
            harness.clock.advance(5)
        assert seen == delivered, group
