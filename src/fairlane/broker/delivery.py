"""The answer of a pop: the lanes it took and their bytes; and as a batch of deliveries to a consumer in the same
process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import Alike, Verdict
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


class Lane(msgspec.Struct, frozen=True):
    """The lane of some deliveries."""

    queue: str
    group: str
    lease: str | None
    """None if nothing needs an ack."""
    partition: str
    partition_id: PartitionId


_NOWHERE = Lane("", "", None, "", PartitionId(0, 0))


class Delivery(msgspec.Struct, rename="camel", gc=False):
    """A message as a pop delivered it. `data` is the producer's bytes; `json()` decodes them."""

    id: str
    transaction_id: str
    data: msgspec.Raw
    trace_id: str | None = None
    type: str | None = None
    headers: dict[str, str] | None = None
    position: int = 0
    created_at: int = 0
    attempts: int = 0
    """Failed attempts so far; known of the first message of each lane."""
    lane: Lane = _NOWHERE

    @property
    def queue(self) -> str:
        return self.lane.queue

    @property
    def partition(self) -> str:
        return self.lane.partition

    @property
    def partition_id(self) -> PartitionId:
        return self.lane.partition_id

    @property
    def group(self) -> str:
        return self.lane.group

    @property
    def lease(self) -> str:
        return self.lane.lease or ""

    def json(self, type: Any = Any) -> Any:
        """The payload decoded, into `type` if one is given."""
        return msgspec.json.decode(self.data, type=type)


_decode = msgspec.json.Decoder(list[Delivery]).decode


class Batch(Sequence[Delivery]):
    """A batch: the messages of one pop, in order. Empty when there was nothing. `lease` is "" if nothing needs an ack.

    The messages are decoded when the first of them is looked at: counting and acking them needs none of that."""

    def __init__(self, popped: Popped) -> None:
        self.lease = popped.lease_id
        self.ordered = popped.ordered
        """Nobody else is given messages of its partitions meanwhile."""
        self.lease_seconds = popped.lease_seconds
        """How long the lease is, from the pop and from each renewal that does not say."""
        self._taken = popped.lanes
        self._deliveries: list[Delivery] = []
        self.lanes: list[tuple[Lane, Sequence[int]]] = []
        """Where the deliveries come from, lane after lane, and their positions there."""
        for taken in popped.lanes:
            partition = taken.lane.partition
            # What failed before comes before what is new of its lane, as a part of its own.
            known = self.lanes[-1][0] if self.lanes else _NOWHERE
            if known.partition_id != partition:
                known = Lane(popped.queue, popped.group, self.lease or None, taken.lane.name, partition)
            self.lanes.append((known, taken.positions))
        self._count = sum(len(positions) for _, positions in self.lanes)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...
    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        return self._decoded()[index]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._decoded())

    def __repr__(self) -> str:
        return f"Batch({len(self)} messages, lease={self.lease!r})"

    def _decoded(self) -> list[Delivery]:
        for (lane, positions), taken in zip(self.lanes, self._taken, strict=False):
            some = _decode(closed(taken.fragments))
            times = (created_at for count, created_at in taken.created_at for _ in range(count))
            for delivery, position, created_at in zip(some, positions, times, strict=True):
                delivery.position, delivery.created_at, delivery.lane = position, created_at, lane
            some[0].attempts = taken.lane.attempts
            self._deliveries += some
        self._taken = []
        return self._deliveries


def alike(deliveries: Sequence[Delivery], verdict: Verdict) -> Alike:
    """The acks of messages of one group that say the same of all of them."""
    if isinstance(deliveries, Batch):  # as it came, so that its lanes need not be found again
        return _of_batch(deliveries, verdict)
    lanes = [delivery.lane for delivery in deliveries]
    positions = [delivery.position for delivery in deliveries]
    if lanes and lanes.count(lanes[0]) == len(lanes):  # some of a batch, mostly
        return Alike(
            {(lanes[0].partition_id, lanes[0].lease): range(len(lanes))}, positions, lambda: _ids(deliveries), verdict
        )
    found: dict[tuple[PartitionId, str | None], list[int]] = {}
    last, indexes = _NOWHERE, found.setdefault((_NOWHERE.partition_id, None), [])
    for index, lane in enumerate(lanes):
        if lane is not last:  # neighbours are mostly of one lane
            last = lane
            indexes = found.setdefault((last.partition_id, last.lease), [])
        indexes.append(index)
    return Alike({lane: some for lane, some in found.items() if some}, positions, lambda: _ids(deliveries), verdict)


def _of_batch(batch: Batch, verdict: Verdict) -> Alike:
    if len(batch.lanes) == 1:
        [(lane, only)] = batch.lanes
        return Alike({(lane.partition_id, lane.lease): range(len(only))}, only, lambda: _ids(batch), verdict)
    indexes: dict[tuple[PartitionId, str | None], Sequence[int]] = {}
    positions: list[int] = []
    for lane, some in batch.lanes:
        key, start = (lane.partition_id, lane.lease), len(positions)
        where = range(start, start + len(some))
        # An unordered lane may come twice: what failed before, and what is new.
        indexes[key] = [*indexes[key], *where] if key in indexes else where
        positions += some
    return Alike(indexes, positions, lambda: _ids(batch), verdict)


def _ids(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.transaction_id for delivery in deliveries]
