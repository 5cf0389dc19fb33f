"""The stored form of the progress of a message."""

from __future__ import annotations

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.moment import Moment
from fairlane.store.contract.store import Store
from fairlane.wire.browse import MessageProgress


class StoredProgress(msgspec.Struct, array_like=True):
    fraction: float
    text: str


_decode = msgspec.json.Decoder(StoredProgress).decode


async def progress_by_group(
    store: Store, queue_id: int, partition: PartitionId, position: int
) -> dict[str, MessageProgress]:
    """Return the progress of a message by the name of the group that handles it."""
    found = await store.progress_reports.of_message(partition, position)
    if not found:
        return {}
    names = {one.id: one.name for one in await store.groups.all(queue_id)}
    reports = {names[id]: (_decode(report), at) for id, (report, at) in found.items() if id in names}
    return {
        name: MessageProgress(fraction=one.fraction, text=one.text, at=Moment(at))
        for name, (one, at) in reports.items()
    }
