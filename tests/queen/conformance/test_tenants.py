"""Trace notes and streams of a tenant."""

from __future__ import annotations

import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.errors import NotFound
from fairlane.queen.model.stream import StateChange, StateOp
from fairlane.queen.streams import Streams
from fairlane.queen.trace_notes import TraceNotes
from fairlane.queen.wire.streams import QueryBody, StateGetBody
from fairlane.wire.traces import TraceBody
from tests.conformance.harness import Harness
from tests.conformance.test_tenants import VALUE, pushed, two


async def cycle(broker: Broker, change: StateChange) -> None:
    await broker.requests.transact([], commit=await broker.resource(Streams).commit_of(change))


async def test_traces_are_written_and_read_by_their_tenant(harness: Harness) -> None:
    mine, other = await two(harness)
    partition, id = await pushed(mine)
    trace = TraceBody(transaction_id=id, partition_id=str(partition), data=VALUE, trace_names=["n"])
    with pytest.raises(NotFound):
        await other.resource(TraceNotes).add(trace)
    await mine.resource(TraceNotes).add(trace)
    assert len(await mine.resource(TraceNotes).of_message(str(partition), id)) == 1
    assert await other.resource(TraceNotes).of_message(str(partition), id) == []


async def test_the_state_of_a_stream_is_that_of_the_tenant(harness: Harness) -> None:
    mine, other = await two(harness)
    partition, _ = await pushed(mine)
    body = QueryBody(name="s", source_queue="q", sink_queue=None, config_hash="h")
    query = (await mine.resource(Streams).register(body)).query
    theirs = (await other.resource(Streams).register(body)).query
    change = StateChange(query.id, partition, [StateOp("k", b"1", None)])
    await cycle(mine, change)
    for id in (query.id, theirs.id):
        with pytest.raises(NotFound):
            await cycle(other, msgspec.structs.replace(change, query_id=id))
        with pytest.raises(NotFound):
            await other.resource(Streams).state(StateGetBody(query_id=str(id), partition_id=str(partition)))
    [row] = await mine.resource(Streams).state(StateGetBody(query_id=str(query.id), partition_id=str(partition)))
    assert row.key == "k"


async def test_notes_and_states_of_streams_are_counted(harness: Harness) -> None:
    mine, other = await two(harness)
    partition, transaction_id = await pushed(mine)
    text, seen = msgspec.Raw(b'"%b"' % (b"x" * 10_000)), 0

    async def check_counted() -> None:
        """Another 10,000 bytes and a little more are counted."""
        nonlocal seen
        before, seen = seen, await harness.store.tenants.other_bytes(mine.tenant)
        assert 10_000 <= seen - before < 12_000

    await mine.resource(TraceNotes).add(
        TraceBody(partition_id=str(partition), transaction_id=transaction_id, data=text)
    )
    await check_counted()
    body = QueryBody(name="s", source_queue="q", sink_queue=None, config_hash="h")
    query = (await mine.resource(Streams).register(body)).query
    await cycle(mine, StateChange(query.id, partition, [StateOp("k", bytes(text), None)]))
    await check_counted()
    assert await harness.store.tenants.other_bytes(other.tenant) == 0
