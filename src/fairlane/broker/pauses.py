"""Pauses: pausing and resuming queues, groups, partitions and lanes; lanes by state, and why one does not move."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name
from functools import partial

from fairlane.broker.explanation import explain, shown
from fairlane.broker.part import Part
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.group import LaneState
from fairlane.model.ids import PartitionId
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import QUEUE_MODE
from fairlane.model.queue import Paused, Queue
from fairlane.store.contract.journal import Backlog
from fairlane.wire.pauses import Explained, Lane, LanePage, LanesQuery
from fairlane.wire.pauses import Pauses as PauseList

_MANY = 1_000_000
_FIRST, _LAST = "\x01", "\U0010ffff"
"""Before every name, and after every name that begins like the text before it."""
_LANES_AT_ONCE = 1000
_LANES_MAX = 5000
"""Lanes looked at for one page: it takes a moment at most, however many partitions there are."""


class Pauses(Part):
    """Pauses of queues, groups, partitions and lanes, by name."""

    async def pause(self, queue: str, *, group: str | None = None, partition: str | None = None) -> None:
        """Hand out nothing of a queue, of one group, of one partition for all groups, or of one lane when both are
        named, until it is resumed. Pushes and acks go on. NotFound if there is no such thing; pausing twice is as good
        as once."""
        found, group_id, partition_id = await self._find(queue, group, partition)
        if not await self._store.pauses.pause(found.id, group_id=group_id, partition=partition_id):
            raise NotFound(f"queue {queue!r} was deleted, or its group has not begun to read the partition")

    async def resume(self, queue: str, *, group: str | None = None, partition: str | None = None) -> bool:
        """Undo `pause` of the same; False if it was not paused. A blocked or parked lane begins its attempts anew."""
        found, group_id, partition_id = await self._find(queue, group, partition)
        resumed = await self._store.pauses.resume(found.id, group_id=group_id, partition=partition_id)
        self._broker.announcer.announce(found.id, _MANY)
        return resumed

    async def resume_lanes(self, queue: str, group: str = QUEUE_MODE) -> int:
        """Resume every blocked or parked lane of a group; how many."""
        found, group_id, _ = await self._find(queue, group, None)
        assert group_id is not None, "a group that is asked for is there"
        resumed = await self._store.pauses.resume_lanes(group_id)
        self._broker.announcer.announce(found.id, _MANY)
        return resumed

    async def list(self, queue: str) -> PauseList:
        """What is paused of a queue, and since when. NotFound if there is none."""
        found, _, _ = await self._find(queue, None, None)
        paused = await self._store.pauses.paused(found.id)
        return PauseList(
            queue=found.name,
            paused_at=moment_or_none(paused.queue_at),
            groups={name: Moment(at) for name, at in paused.groups.items()},
            partitions={name: Moment(at) for name, at in paused.partitions.items()},
        )

    async def explain(self, queue: str, partition: str, group: str = QUEUE_MODE) -> Explained:
        """Why a lane does not move. NotFound if queue, group or partition are not there."""
        found, lane, paused = await self._lane(queue, partition, group)
        acks = await self._waiting_acks(lane.partition, found, group)
        now = await self._store.now()
        return explain(lane, found, paused, group=group, now=now, acks=acks, seals=self._store.seals)

    async def _waiting_acks(self, partition: PartitionId, queue: Queue, group: str) -> int:
        """Count the acks of a lane that were accepted and are not applied yet, in the store and in this journal."""
        group_id = (await self._catalogue.existing_group(queue, group)).id
        acks = await self._store.operations.acks(partition, group_id)
        if (journal := self._broker.journal) is not None:
            acks += journal.count(Backlog("ack", self._tenant, group, str(partition)))
        return acks

    async def lane(self, queue: str, partition: str, group: str = QUEUE_MODE) -> Lane:
        """How a lane stands. NotFound if queue, group or partition are not there."""
        found, lane, paused = await self._lane(queue, partition, group)
        return shown(lane, found, paused, group=group, now=await self._store.now())

    async def _lane(self, queue: str, partition: str, group: str) -> tuple[Queue, LaneState, Paused]:
        found, group_id, partition_id = await self._find(queue, group, partition)
        assert group_id is not None, "a group that is asked for is there"
        lanes = await self._store.groups.lanes(group_id, partition=partition_id, limit=1)
        if not lanes:
            raise NotFound(f"group {group!r} has not begun to read partition {partition!r}; ask again soon")
        return found, lanes[0], await self._store.pauses.paused(found.id)

    async def lanes(self, queue: str, query: LanesQuery) -> LanePage:
        """The lanes of a group that match, by the name of their partition. Of names that are searched for, those that
        begin so come first: they are found at once among any number."""
        group, search, after = query.group or QUEUE_MODE, query.search, query.after
        found, group_id, _ = await self._find(queue, group, None)
        assert group_id is not None, "a group that is asked for is there"
        paused, now = await self._store.pauses.paused(found.id), await self._store.now()
        if query.sort == "urgent":
            if search or after or query.state:
                raise InvalidRequest(
                    "`sort=urgent` cannot be searched, and is one page: leave out search, state, after"
                )
            urgent = await self._store.groups.urgent(group_id, limit=query.limit)
            first = [shown(lane, found, paused, group=group, now=now) for lane in urgent]
            return LanePage(queue=queue, group=group, lanes=first, next=None, complete=len(first) < query.limit)
        matching: List[Lane] = []
        answer = partial(LanePage, queue=queue, group=group, lanes=matching)

        def add(lane: LaneState) -> bool:
            """Whether there was room for it, if it matches."""
            one = shown(lane, found, paused, group=group, now=now)
            if query.state not in (None, one.state) and (query.state != "unfinished" or one.state == "finished"):
                return True
            if len(matching) == query.limit:
                return False
            matching.append(one)
            return True

        if search and (not after or after.startswith(search)):
            named = None if after else await self._store.queues.named(found.id, search)
            for lane in await self._store.groups.lanes(group_id, partition=named.id, limit=1) if named else ():
                add(lane)
            after = after or search
            lanes = await self._store.groups.lanes(group_id, after=after, limit=_LANES_AT_ONCE)
            for lane in lanes:
                if not lane.name.startswith(search):
                    break
                if not add(lane):
                    return answer(next=after, complete=True)
                after = lane.name
            else:
                if len(lanes) == _LANES_AT_ONCE:
                    return answer(next=after, complete=False)
            after = ""
        # Most pages show what comes next; only one that filters looks at more than it shows.
        at_once = _LANES_AT_ONCE if search or query.state else query.limit + 1
        begin = after
        for _ in range(_LANES_MAX // _LANES_AT_ONCE):
            lanes = await self._store.groups.lanes(group_id, after=begin, limit=at_once)
            for lane in lanes:
                if search and lane.name.startswith(search):
                    begin = f"{search}{_LAST}"  # they were shown before; go on behind them
                    break
                if search in lane.name and not add(lane):
                    return answer(next=after or _FIRST, complete=True)
                begin = after = lane.name
            else:
                if len(lanes) < at_once:
                    return answer(next=None, complete=True)
        return answer(next=after or _FIRST, complete=False)

    async def _find(
        self, queue: str, group: str | None, partition: str | None
    ) -> tuple[Queue, int | None, PartitionId | None]:
        found = await self._catalogue.existing(self._tenant, queue)
        group_id = None if group is None else (await self._catalogue.existing_group(found, group)).id
        return found, group_id, await self._catalogue.existing_partition(found, partition)
