"""The answer of a pop: the lanes it took and their bytes; and as a batch of messages for a consumer in the same
process."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.message import NOWHERE, Batch, Lane, Message, decoder_of
from fairlane.model.moment import Moment
from fairlane.model.outcome import AckItem, Alike
from fairlane.model.segment import closed
from fairlane.store.contract.values import Lane as Claimed


class Taken(msgspec.Struct):
    """One lane of a pop's answer. Its bytes were checked; they are cut into messages when those are looked at."""

    lane: Claimed
    created_at: list[tuple[int, int]]
    """(number of messages, their created_at), segment by segment."""
    cut: list[bytes] | None = None

    @property
    def positions(self) -> range:
        return range(self.lane.first, self.lane.upto)

    @property
    def fragments(self) -> list[bytes]:
        """The stored form of each message."""
        if self.cut is None:
            lane = self.lane
            self.cut = [each for segment in lane.segments for each in segment.cut(lane.first, lane.upto)]
        return self.cut


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


_decode = msgspec.json.Decoder(list[Message[Any]]).decode


class PoppedBatch(Batch[Any]):
    """The batch of a pop in the same process. Its messages are decoded when the first of them is looked at: counting
    and acking them needs none of that."""

    def __init__(self, popped: Popped, type: Any = Any) -> None:
        super().__init__(popped.lease_id, [], ordered=popped.ordered, lease_seconds=popped.lease_seconds)
        self.retry_delay_ms = popped.retry_delay_ms
        self._taken = popped.lanes
        self._decode = decoder_of(type)
        self.lanes: list[tuple[Lane, Sequence[int]]] = []
        """Where the messages come from, lane after lane, and their positions there."""
        for taken in popped.lanes:
            partition = taken.lane.partition
            # What failed before comes before what is new of its lane, as a part of its own.
            known = self.lanes[-1][0] if self.lanes else NOWHERE
            if known.partition_id != partition:
                known = Lane(popped.queue, popped.group, self.lease or None, taken.lane.name, partition)
            self.lanes.append((known, taken.positions))
        self._count = sum(len(positions) for _, positions in self.lanes)

    def __len__(self) -> int:
        return self._count

    @property
    def messages(self) -> list[Message[Any]]:
        for (lane, positions), taken in zip(self.lanes, self._taken, strict=False):
            some = _decode(closed(taken.fragments))
            times = chain.from_iterable(repeat(Moment(at), count) for count, at in taken.created_at)
            for message, position, created_at in zip(some, positions, times, strict=True):
                message.position, message.created_at, message.lane = position, created_at, lane
                message.decode = self._decode
            some[0].failed_attempts = taken.lane.attempts
            self._messages += some
        self._taken = []
        return self._messages


def alike(messages: Sequence[Message[Any]], verdict: AckItem) -> Alike:
    """The acks of messages of one group that say the same of all of them."""
    runs: list[tuple[Lane, Sequence[int]]]
    if isinstance(messages, PoppedBatch):  # as it came, so that its lanes need not be found again
        runs = messages.lanes
    else:
        runs = [(lane, [one.position for one in some]) for lane, some in groupby(messages, attrgetter("lane"))]
    indexes: dict[tuple[PartitionId, str | None], Sequence[int]] = {}
    positions: Sequence[int] = runs[0][1] if len(runs) == 1 else [at for _, some in runs for at in some]
    start = 0
    for lane, some in runs:
        key, where = (lane.partition_id, lane.lease), range(start, start + len(some))
        # A lane may come twice, as an unordered one does: what failed before, and what is new.
        indexes[key] = [*indexes[key], *where] if key in indexes else where
        start = where.stop
    return Alike(indexes, positions, lambda: [message.transaction_id for message in messages], verdict)
