"""Positions of leased messages: consumers ack by transactionId, cursors move by position.

This broker caches the batches that it delivered. Other leases are read from the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import UniformAcks
from fairlane.model.segment import ID_AT, Segment, transaction_ids
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import ClaimedLane

_BYTES_MAX = 64 * 1024 * 1024
_LANE_OVERHEAD = 500


class LeasedBatch(msgspec.Struct):
    """Consecutive messages of one lane of a lease, decoded on first access."""

    lease: LeaseId
    range: range
    size: int
    segments: Sequence[Segment] | None
    """Segments with the messages. None once they were decoded."""
    ids_in_order: list[str] = []
    present: Sequence[int] = ()
    """Positions of these messages. Fewer than `range` if some were moved or deleted after the lease was read."""
    by_id: dict[str, int] | None = None

    def ids(self) -> list[str]:
        """Return the transactionIds, in order."""
        if self.segments is not None:
            first, upto = self.range.start, self.range.stop
            self.ids_in_order = transaction_ids([each for one in self.segments for each in one.cut(first, upto)])
            self.present = [
                position
                for one in self.segments
                for position in range(max(one.first, first), min(one.first + len(one.ends), upto))
            ]
            self.segments = None
        return self.ids_in_order

    def matches_ids(self, ids: Sequence[str]) -> bool:
        """Return True if these are the ids of all its messages, in order. Compares stored bytes without decoding."""
        if self.segments is None:
            return self.ids_in_order == ids
        quoted = "".join([f'{id}"' for id in ids])
        if quoted.count('"') > len(ids):  # a quote inside an id is stored in escaped form
            return False
        if not quoted.isascii():
            return False
        starts: list[tuple[bytes, int]] = []
        for segment in self.segments:
            skip = max(0, self.range.start - segment.first)
            ends = segment.ends[skip : self.range.stop - segment.first]
            first = segment.ends[skip - 1] if skip else 0
            starts += [(segment.body, start + ID_AT) for start in (first, *ends[:-1])]
        found = [body[start : start + len(id) + 1] for (body, start), id in zip(starts, ids, strict=True)]
        return b"".join(found) == quoted.encode()

    def positions(self) -> dict[str, int]:
        if self.by_id is None:  # only built for messages that are acked one by one
            self.by_id = dict(zip(self.ids(), self.present, strict=True))
        return self.by_id


def bounds(positions: Sequence[int]) -> tuple[int, int]:
    """Return the smallest and the largest position."""
    return (positions[0], positions[-1]) if type(positions) is range else (min(positions), max(positions))


class Leases:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._batches: OrderedDict[tuple[str, PartitionId], list[LeasedBatch]] = OrderedDict()
        """Batches by the id of the lease and the lane."""
        self._bytes = 0

    def remember(self, id: str, lease: LeaseId, lane: ClaimedLane) -> None:
        """Cache the batch of `lane`, which a pop under this lease delivered with verified bytes."""
        size = sum([len(segment.body) for segment in lane.segments]) + _LANE_OVERHEAD
        batch = LeasedBatch(lease, range(lane.first, lane.upto), size, lane.segments)
        self._batches.setdefault((id, lane.partition), []).append(batch)
        self._bytes += batch.size
        while self._bytes > _BYTES_MAX:
            _, old = self._batches.popitem(last=False)
            self._bytes -= sum(one.size for one in old)

    def forget(self, id: str, partition: PartitionId) -> None:
        for batch in self._batches.pop((id, partition), ()):
            self._bytes -= batch.size

    def known(
        self, id: str, partition: PartitionId, acks: UniformAcks, indexes: Sequence[int]
    ) -> tuple[LeaseId, Sequence[int]] | None:
        """Return the lease and the positions of these messages. None if the fast path does not apply.

        It applies to all messages of the only batch in this lane, in order, to one of them, and to given positions.
        """
        batches = self._batches.get((id, partition), ())
        if len(batches) != 1:
            return None
        [batch] = batches
        span = batch.range
        if acks.positions is not None:
            positions = acks.positions[partition, id]
            least, most = bounds(positions)
            return (batch.lease, positions) if span.start <= least and most < span.stop else None
        ids = acks.transaction_ids
        if len(indexes) < len(ids):  # each index occurs once
            ids = [ids[index] for index in indexes]
        if len(ids) == len(span):
            return (batch.lease, span) if batch.matches_ids(ids) else None
        position = batch.positions().get(ids[0]) if len(ids) == 1 else None
        return None if position is None else (batch.lease, range(position, position + 1))

    async def holds(self, lease: LeaseId, partition: PartitionId) -> list[range]:
        """Return the positions of the lease in this lane. Empty if it does not hold the lane."""
        batches = self._batches.get((str(lease), partition))
        if batches is not None:
            return [batch.range for batch in batches]
        return [
            range(leased.first, leased.upto)
            for leased in await self._store.messages.leased(lease)
            if leased.partition == partition
        ]

    async def positions(self, lease: LeaseId, partition: PartitionId) -> dict[str, int]:
        """Return the position of each transactionId in the lane's batch. Empty if the lease does not hold the lane."""
        batches = self._batches.get((str(lease), partition))
        if batches is None:
            batches = []
            for leased in await self._store.messages.leased(lease):
                if leased.partition == partition:
                    segments = await self._store.messages.read(partition, leased.first, leased.upto)
                    for segment in segments:
                        segment.check()
                    batches.append(LeasedBatch(lease, range(leased.first, leased.upto), 0, segments))
        if len(batches) == 1:
            return batches[0].positions()
        return {id: position for batch in batches for id, position in batch.positions().items()}
