"""Operations out of dead letters, when they are replayed into a partition that has open operations."""

from __future__ import annotations

from uuid import UUID

from fairlane.errors import LaneWaiting
from fairlane.model.ids import uuid7
from fairlane.model.operation import push_payload
from fairlane.store.codec import Codec
from fairlane.store.contract.operations import NewOperation
from fairlane.store.contract.values import Slice


def replay_operation(part: Slice, tenant: str, queue: str, partition: str, codec: Codec) -> NewOperation:
    """The messages of a slice as an operation. LaneWaiting for sealed ones, which are sealed for their place in the
    log, and not for the way there."""
    if codec.is_prepared(part.queue_id):
        raise LaneWaiting("operations wait in a partition of these dead letters; try again when they are done")
    return NewOperation(
        id=UUID(uuid7()),
        type="PUSH",
        partition=part.partition,
        queue_id=part.queue_id,
        options=part.options,
        tenant=tenant,
        queue=queue,
        partition_name=partition,
        messages=len(part.fragments),
        payload=push_payload(part.fragments, doubt=False),
    )
