"""Trace notes and streams of sealed queues."""

from __future__ import annotations

import pytest

from fairlane.errors import SealError
from tests.conformance.harness import Harness
from tests.conformance.test_encryption import CANARY, OLD, opened, sealed_queue
from tests.queen.conformance.test_streams import put, register, state
from tests.queen.notes import add_note, notes_of


async def test_notes_on_a_message_of_a_sealed_queue_are_sealed(harness: Harness) -> None:
    await opened(harness, OLD)
    queue = await sealed_queue(harness)
    partition, note = (await harness.partition(queue)).id, f'"{CANARY}"'.encode()
    await harness.push(queue, [1], ids=["the id"])
    await add_note(harness.store, partition, "the id", note)
    assert await notes_of(harness.store, partition, "the id") == [note]
    [row] = await harness.backend.sql("SELECT data FROM fairlane.traces WHERE partition_id = $1", partition.id)
    assert CANARY.encode() not in bytes(row[0])


async def test_the_state_of_a_stream_over_a_sealed_queue_is_sealed_and_bound_to_its_place(harness: Harness) -> None:
    await opened(harness, OLD)
    queue, plain = await sealed_queue(harness), await harness.queue()
    await harness.push(queue, [1])
    query = await register(harness)
    lane, other = (await harness.partition(queue)).id, (await harness.partition(plain)).id
    value = b'{"seen":"%b"}' % CANARY.encode()
    for partition in (lane, other):
        await put(harness, query.id, partition, key=value, more=value)
        assert await state(harness, query.id, partition) == {"key": value, "more": value}
    stored = "SELECT value FROM fairlane.stream_state WHERE partition_id = $1 ORDER BY key"
    for row in await harness.backend.sql(stored, lane.id):
        assert CANARY.encode() not in bytes(row[0])
    await harness.backend.sql(
        "UPDATE fairlane.stream_state SET value = (SELECT s.value FROM fairlane.stream_state s "
        "WHERE s.partition_id = $1 AND s.key = 'more') WHERE partition_id = $1 AND key = 'key'",
        lane.id,
    )
    with pytest.raises(SealError):
        await state(harness, query.id, lane)
    await opened(harness)
    with pytest.raises(SealError):
        await put(harness, query.id, lane, key=value)
    with pytest.raises(SealError):
        await state(harness, query.id, lane)
    await put(harness, query.id, other, key=b"1")
