"""Trace notes for tests of the store."""

from __future__ import annotations

from fairlane.model.ids import PartitionId, uuid7
from fairlane.queen.model.trace import Trace
from fairlane.queen.store.traces import StoredTraces
from fairlane.store.contract.store import Store


async def add_note(store: Store, partition: PartitionId, transaction_id: str, data: bytes = b"1") -> None:
    note = Trace(
        id=uuid7(),
        partition=partition,
        transaction_id=transaction_id,
        data=data,
        group="g",
        event_type="e",
        names=["name"],
    )
    assert await store.family(StoredTraces).add(note)


async def notes_of(store: Store, partition: PartitionId, transaction_id: str) -> list[bytes]:
    return [note.data for note in await store.family(StoredTraces).of_message(partition, transaction_id)]
