"""Messages of many partitions in one order, newest first.

The partitions are merged. A few messages of each are read at a time, more as they are used up, and none twice. So the
cost depends on the number of messages that the caller takes, not on the number of partitions or stored messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from fairlane.model.ids import PartitionId
from fairlane.store.contract.browse import ListPosition, StoredHead, Upto
from fairlane.store.contract.store import Store

_PARTITIONS_AT_ONCE, _PARTITIONS_AT_ONCE_MAX = 20, 500
"""Number of active partitions to read at first, and at most. Most pages need few."""
_LANE_HEADS_MIN, _LANE_HEADS_MAX = 4, 1_000
Origin = tuple[int, str]
"""The id of a queue, and the name of a partition of it."""


class _Lane:
    """A partition with a buffer of messages that were read and not returned yet."""

    def __init__(self, id: PartitionId, origin: Origin) -> None:
        self.id = id
        self.origin = origin
        self.heads: deque[StoredHead] = deque()
        self.read = 0
        """Number of messages that the last read requested."""
        self.last: ListPosition | None = None
        """The oldest message that was read."""
        self.ended = False


class Newest:
    """The messages of some queues from `before` on, created from `since` to `until`.

    `partition` is the name of the partitions to read, None for all.
    """

    def __init__(
        self,
        store: Store,
        queue_ids: Sequence[int],
        *,
        partition: str | None,
        since: int,
        until: int,
        before: ListPosition | None,
    ) -> None:
        self._store = store
        self._queue_ids = queue_ids
        self._partition = partition
        self._since = since
        self._until = until
        self._before = before
        self._lanes: dict[PartitionId, _Lane] = {}
        self._newest: list[tuple[tuple[int, ...], _Lane]] = []
        """A heap of the lanes with messages, by their newest."""
        self._empty: list[_Lane] = []
        """Lanes whose next message must be read before any is taken."""
        self._seen: tuple[int, PartitionId] | None = None
        """Time of the last write to the last active partition, and its id. The others were written to earlier."""
        self._at_once = _PARTITIONS_AT_ONCE
        self._all_seen = not queue_ids

    async def take(self, count: int) -> list[tuple[StoredHead, Origin]]:
        """Return the next `count` messages, fewer at the end."""
        taken: list[tuple[StoredHead, Origin]] = []
        while len(taken) < count:
            if self._empty:
                await self._read_on()
            while not self._all_seen and not self._is_newest():
                await self._read_active(count)
            if not self._newest:
                break
            _, lane = heappop(self._newest)
            taken.append((lane.heads.popleft(), lane.origin))
            self._line_up(lane)
        return taken

    def _is_newest(self) -> bool:
        """Return True if no unread partition can have a newer message than the read ones."""
        return bool(self._newest) and self._newest[0][1].heads[0].at[:2] >= (self._seen or (2**63,))

    def _line_up(self, lane: _Lane) -> None:
        if lane.heads:
            at, (cell, number), position = lane.heads[0].at
            heappush(self._newest, ((-at, -cell, -number, -position), lane))
        elif not lane.ended:
            self._empty.append(lane)

    async def _read_active(self, count: int) -> None:
        """Read the first messages of the next most recently written partitions."""
        some = await self._store.browse.active(
            self._queue_ids, name=self._partition, since=self._since, before=self._seen, limit=self._at_once
        )
        if not some:
            self._all_seen = True
            return
        self._seen = some[-1].last_at, some[-1].id
        self._at_once = min(2 * self._at_once, _PARTITIONS_AT_ONCE_MAX)
        lanes = [_Lane(each.id, (each.queue_id, each.name)) for each in some]
        self._lanes |= {lane.id: lane for lane in lanes}
        await self._read(lanes, max(_LANE_HEADS_MIN, count // len(lanes)))

    async def _read_on(self) -> None:
        """Read more messages of lanes whose buffers are empty, or nearly so."""
        again = [*self._empty, *(lane for _, lane in self._newest if len(lane.heads) <= lane.read // 4)]
        lanes = [lane for lane in again if not lane.ended]
        self._empty = []
        await self._read(lanes, min(2 * max(lane.read for lane in lanes), _LANE_HEADS_MAX))

    async def _read(self, lanes: list[_Lane], count: int) -> None:
        bounds = [_bound(lane.id, self._until, lane.last or self._before) for lane in lanes]
        empty = [lane for lane in lanes if not lane.heads]
        found = dict.fromkeys((lane.id for lane in lanes), 0)
        for head in await self._store.browse.newest(bounds, since=self._since, limit=count):
            lane = self._lanes[head.at.partition]
            lane.heads.append(head)
            lane.last = head.at
            found[lane.id] += 1
        for lane in lanes:
            lane.read, lane.ended = count, found[lane.id] < count
        for lane in empty:
            self._line_up(lane)


def _bound(partition: PartitionId, until: int, before: ListPosition | None) -> Upto:
    """Return where to start reading a partition, so that everything found is after `before`."""
    if before is None or before.created_at > until:
        return Upto(partition, until + 1)
    if partition == before.partition:
        return Upto(partition, before.created_at + 1, before.position)
    return Upto(partition, before.created_at + (partition < before.partition))
