"""The outcome of a pop: the lanes it claimed and their bytes. A consumer in the same process gets it as a batch."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.model.batch import Batch, Run
from fairlane.model.decoding import Decode
from fairlane.model.lease import LeaseId
from fairlane.model.message import NOWHERE, Lane
from fairlane.model.segment import closed
from fairlane.store.contract.values import ClaimedLane


class PoppedLane(msgspec.Struct):
    """One lane of a pop. Its bytes were verified; they are cut into messages only when those are read."""

    lane: ClaimedLane
    created_at: list[tuple[int, int]]
    """(number of messages, their created_at), segment by segment."""

    def text(self) -> bytes:
        """Return the messages in their stored form, as a JSON array."""
        lane = self.lane
        return closed([each for segment in lane.segments for each in segment.cut(lane.first, lane.upto)])


class PopOutcome(msgspec.Struct):
    queue: str
    group: str
    lease: LeaseId | None
    """The lease. None if nothing was claimed, or if no ack is needed."""
    lanes: list[PoppedLane]
    conflation: bool = False
    """True if the group conflates, whatever this pop asked for."""
    ordered: bool = False
    """True if a lane is delivered in order, so that a cumulative ack is possible."""
    lease_seconds: int = 0
    """Length of the lease: from the pop, or from the queue. A renewal should use the same."""
    lease_id: str = ""
    """Id of the lease in the form for consumers."""
    retry_delay_ms: int = 0
    """Backoff of the queue in milliseconds. 0 if it has none."""

    def batch(self, decode: Decode) -> Batch[Any]:
        """Return the messages as a batch for a consumer in the same process."""
        runs: list[Run] = []
        for popped in self.lanes:
            partition = popped.lane.partition
            # Retries of a lane come before its new messages, in a separate run.
            lane = runs[-1].lane if runs else NOWHERE
            if lane.partition_id != partition:
                lane = Lane(self.queue, self.group, self.lease_id or None, popped.lane.name, partition)
            runs.append(Run(lane, popped.lane.first, popped.created_at, popped.text, popped.lane.attempts))
        batch: Batch[Any] = Batch(self.lease_id, runs, decode, ordered=self.ordered, lease_seconds=self.lease_seconds)
        batch.retry_delay_ms = self.retry_delay_ms
        return batch
