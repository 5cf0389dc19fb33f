"""What a pop gives a consumer in the same process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import msgspec

from fairlane.engine.pop import Popped
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import Completed
from fairlane.model.segment import closed


class Lane(msgspec.Struct, frozen=True):
    """Where some deliveries come from."""

    queue: str
    group: str
    lease: str
    partition: str
    partition_id: PartitionId


_NOWHERE = Lane("", "", "", "", PartitionId(0, 0))


class Delivery(msgspec.Struct, rename="camel", gc=False):
    """One message in a consumer's hands. `data` is the producer's bytes; `json()` decodes them."""

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
        return self.lane.lease

    def json(self, type: Any = Any) -> Any:
        """The payload decoded, into `type` if one is given."""
        return msgspec.json.decode(self.data, type=type)


_decode = msgspec.json.Decoder(list[Delivery]).decode


class Batch(Sequence[Delivery]):
    """What one pop gave, in order. Empty when there was nothing. `lease` is "" if nothing needs an ack."""

    def __init__(self, lease: str, deliveries: list[Delivery], lanes: list[tuple[Lane, range]]) -> None:
        self.lease = lease
        self.lanes = lanes
        """Where the deliveries come from, lane after lane, and their positions there."""
        self._deliveries = deliveries

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> list[Delivery]: ...
    def __getitem__(self, index: int | slice) -> Delivery | list[Delivery]:
        return self._deliveries[index]

    def __len__(self) -> int:
        return len(self._deliveries)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._deliveries)

    def __repr__(self) -> str:
        return f"Batch({len(self)} messages, lease={self.lease!r})"


def completed(deliveries: Sequence[Delivery]) -> Completed:
    """The acks of messages of one group that are done."""
    lanes: dict[tuple[PartitionId, str | None], Sequence[int]] = {}
    positions: list[int] = []
    if isinstance(deliveries, Batch):  # as it came, so that its lanes need not be found again
        for lane, some in deliveries.lanes:
            key = lane.partition_id, lane.lease or None
            added = range(len(positions), len(positions) + len(some))
            # A partition of an unordered queue may come in several runs: what comes again, and what is new.
            lanes[key] = [*lanes[key], *added] if key in lanes else added
            positions += some
    else:
        positions = [delivery.position for delivery in deliveries]
        found: dict[tuple[PartitionId, str | None], list[int]] = {}
        last, indexes = _NOWHERE, found.setdefault((_NOWHERE.partition_id, None), [])
        for index, delivery in enumerate(deliveries):
            if delivery.lane is not last:  # neighbours are mostly of one lane
                last = delivery.lane
                indexes = found.setdefault((last.partition_id, last.lease or None), [])
            indexes.append(index)
        lanes.update((lane, some) for lane, some in found.items() if some)
    return Completed(lanes, [delivery.transaction_id for delivery in deliveries], positions)


def batch_of(popped: Popped) -> Batch:
    lease = str(popped.lease) if popped.lease else ""
    deliveries: list[Delivery] = []
    lanes: list[tuple[Lane, range]] = []
    for taken in popped.lanes:
        source = taken.lane
        lane = Lane(popped.queue, popped.group, lease, source.name, source.partition)
        some = _decode(closed(taken.fragments))
        times = iter(taken.created_at)
        left, created_at = next(times)
        for position, delivery in enumerate(some, source.first):
            while not left:
                left, created_at = next(times)
            left -= 1
            delivery.position, delivery.created_at, delivery.lane = position, created_at, lane
        some[0].attempts = source.attempts
        deliveries += some
        lanes.append((lane, range(source.first, source.first + len(some))))
    return Batch(lease, deliveries, lanes)
