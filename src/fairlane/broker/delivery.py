"""The answer of a pop: the lanes it took and their bytes; and as a batch of messages for a consumer in the same
process."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.model.batch import Batch, Run
from fairlane.model.lease import LeaseId
from fairlane.model.message import NOWHERE, Decode, Lane
from fairlane.model.segment import closed
from fairlane.store.contract.values import Lane as Claimed


class Taken(msgspec.Struct):
    """One lane of a pop's answer. Its bytes were checked; they are cut into messages when those are looked at."""

    lane: Claimed
    created_at: list[tuple[int, int]]
    """(number of messages, their created_at), segment by segment."""

    def text(self) -> bytes:
        """The messages in their stored form, as a JSON array."""
        lane = self.lane
        return closed([each for segment in lane.segments for each in segment.cut(lane.first, lane.upto)])


class Popped(msgspec.Struct):
    queue: str
    group: str
    lease: LeaseId | None
    """None when nothing was taken, or it needs no ack."""
    lanes: list[Taken]
    conflation: bool = False
    """What the group was begun with, not what this pop asked for."""
    ordered: bool = False
    """The messages of a lane come in order, so that an ack of one finishes those before it."""
    lease_seconds: int = 0
    """How long the lease is: what the pop asked for, or else the queue's setting. A renewal should ask for as much."""
    lease_id: str = ""
    """The lease as consumers name it."""
    retry_delay_ms: int = 0
    """The queue's backoff; 0 if it has none."""

    def batch(self, decode: Decode) -> Batch[Any]:
        """For a consumer in the same process."""
        runs: list[Run] = []
        for taken in self.lanes:
            partition = taken.lane.partition
            # What failed before comes before what is new of its lane, as a part of its own.
            lane = runs[-1].lane if runs else NOWHERE
            if lane.partition_id != partition:
                lane = Lane(self.queue, self.group, self.lease_id or None, taken.lane.name, partition)
            runs.append(Run(lane, taken.lane.first, taken.created_at, taken.text, taken.lane.attempts))
        batch: Batch[Any] = Batch(self.lease_id, runs, decode, ordered=self.ordered, lease_seconds=self.lease_seconds)
        batch.retry_delay_ms = self.retry_delay_ms
        return batch
