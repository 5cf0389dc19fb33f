"""Positions of leased messages: consumers ack by transactionId, cursors move by position.

This broker remembers what it handed out. A lease that another broker handed out, or that was forgotten, is read
from the store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from uuid import UUID

from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.segment import Segment, transaction_ids
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Lane

_BYTES_MAX = 64 * 1024 * 1024
_LANE_OVERHEAD = 500

LaneKey = tuple[int, PartitionId]
"""The token of a lease as a number, which is hashed much faster, and the partition."""


class _Batch:
    """Messages in a row of one lane of a lease, unpacked when first asked for."""

    __slots__ = ("_ids", "_positions", "_segments", "range", "size")

    def __init__(self, first: int, upto: int, segments: Sequence[Segment]) -> None:
        self.range = range(first, upto)
        self.size = sum([len(segment.body) for segment in segments]) + _LANE_OVERHEAD
        self._segments: Sequence[Segment] | None = segments
        self._ids: list[str] = []
        self._positions: dict[str, int] | None = None

    def ids(self) -> list[str]:
        """The transactionIds, in order."""
        if self._segments is not None:
            first, upto = self.range.start, self.range.stop
            self._ids = transaction_ids([each for segment in self._segments for each in segment.cut(first, upto)])
            self._segments = None
        return self._ids

    def positions(self) -> dict[str, int]:
        if self._positions is None:  # asked for once for each message, where they are acked one by one
            self._positions = dict(zip(self.ids(), self.range, strict=True))
        return self._positions


class Leases:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._batches: OrderedDict[LaneKey, list[_Batch]] = OrderedDict()
        self._bytes = 0

    def remember(self, token: UUID, lane: Lane) -> None:
        """`lane` is what a pop under this token was given; its bytes were checked."""
        batch = _Batch(lane.first, lane.upto, lane.segments)
        self._batches.setdefault((token.int, lane.partition), []).append(batch)
        self._bytes += batch.size
        while self._bytes > _BYTES_MAX:
            _, old = self._batches.popitem(last=False)
            self._bytes -= sum(one.size for one in old)

    def forget(self, token: UUID, partition: PartitionId) -> None:
        for batch in self._batches.pop((token.int, partition), ()):
            self._bytes -= batch.size

    async def holds(self, lease: LeaseId, partition: PartitionId) -> list[range]:
        """The positions that the lease was given in this lane; none if it does not hold the lane (any more)."""
        batches = self._batches.get((lease.token.int, partition))
        if batches is not None:
            return [batch.range for batch in batches]
        return [
            range(leased.first, leased.upto)
            for leased in await self._store.messages.leased(lease)
            if leased.partition == partition
        ]

    def whole(self, lease: LeaseId, partition: PartitionId, ids: Sequence[str]) -> range | None:
        """The positions of these ids if they are all that the lease was given in this lane, in order, as is usual."""
        batches = self._batches.get((lease.token.int, partition), ())
        if len(batches) == 1 and len(batches[0].range) == len(ids) and batches[0].ids() == ids:
            return batches[0].range
        return None

    async def positions(self, lease: LeaseId, partition: PartitionId) -> dict[str, int]:
        """Position of each transactionId in the lane's batch; empty if the lease does not hold the lane (any more)."""
        batches = self._batches.get((lease.token.int, partition))
        if batches is None:
            batches = []
            for leased in await self._store.messages.leased(lease):
                if leased.partition == partition:
                    segments = await self._store.messages.read(partition, leased.first, leased.upto)
                    for segment in segments:
                        segment.check()
                    batches.append(_Batch(leased.first, leased.upto, segments))
        if len(batches) == 1:
            return batches[0].positions()
        return {id: position for batch in batches for id, position in batch.positions().items()}
