"""Which message of a lease has which position: consumers ack by transactionId, cursors move by position.

This broker remembers what it handed out. A lease that another broker handed out, or that was forgotten, is read
from the store."""

from __future__ import annotations

from collections import OrderedDict
from uuid import UUID

from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.segment import transaction_ids
from fairlane.store.base import Store
from fairlane.store.values import Lane

_BYTES_MAX = 64 * 1024 * 1024
_LANE_OVERHEAD = 500

LaneKey = tuple[UUID, PartitionId]


class _Batch:
    """Messages in a row of one lane of a lease, unpacked when first asked for."""

    __slots__ = ("_fragments", "_positions", "count", "first", "size")

    def __init__(self, first: int, fragments: list[bytes]) -> None:
        self.first = first
        self.count = len(fragments)
        self.size = sum(map(len, fragments)) + _LANE_OVERHEAD
        self._fragments: list[bytes] | None = fragments
        self._positions: dict[str, int] = {}

    def positions(self) -> dict[str, int]:
        if self._fragments is not None:
            ids = transaction_ids(self._fragments)
            self._positions = dict(zip(ids, range(self.first, self.first + len(ids)), strict=True))
            self._fragments = None
        return self._positions


class Leases:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._batches: OrderedDict[LaneKey, list[_Batch]] = OrderedDict()
        self._bytes = 0

    def remember(self, token: UUID, lane: Lane, fragments: list[bytes]) -> None:
        batch = _Batch(lane.first, fragments)
        self._batches.setdefault((token, lane.partition), []).append(batch)
        self._bytes += batch.size
        while self._bytes > _BYTES_MAX:
            _, old = self._batches.popitem(last=False)
            self._bytes -= sum(one.size for one in old)

    def forget(self, token: UUID, partition: PartitionId) -> None:
        for batch in self._batches.pop((token, partition), ()):
            self._bytes -= batch.size

    async def holds(self, lease: LeaseId, partition: PartitionId) -> list[range]:
        """The positions that the lease was given in this lane; none if it does not hold the lane (any more)."""
        batches = self._batches.get((lease.token, partition))
        if batches is not None:
            return [range(batch.first, batch.first + batch.count) for batch in batches]
        return [
            range(leased.first, leased.upto)
            for leased in await self._store.messages.leased(lease)
            if leased.partition == partition
        ]

    async def positions(self, lease: LeaseId, partition: PartitionId) -> dict[str, int]:
        """Position of each transactionId in the lane's batch; empty if the lease does not hold the lane (any more)."""
        batches = self._batches.get((lease.token, partition))
        if batches is None:
            batches = []
            for leased in await self._store.messages.leased(lease):
                fragments: list[bytes] = []
                for segment in await self._store.messages.read(leased.partition, leased.first, leased.upto):
                    fragments += segment.fragments(leased.first, leased.upto)
                if leased.partition == partition:
                    batches.append(_Batch(leased.first, fragments))
        if len(batches) == 1:
            return batches[0].positions()
        return {id: position for batch in batches for id, position in batch.positions().items()}
