"""Pauses of queues, groups, partitions and lanes; lanes by state, and explanations why one does not advance."""

from __future__ import annotations

from functools import partial

import msgspec

from fairlane.broker.flags import POPS_PAUSED, PUSHES_PAUSED
from fairlane.broker.lane_diagnosis import explain, shown
from fairlane.broker.messages import BY_HAND
from fairlane.broker.resource import Resource
from fairlane.errors import InvalidRequest, NotAvailable, NotFound
from fairlane.model.group import LaneState
from fairlane.model.ids import PartitionId
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import QUEUE_MODE
from fairlane.model.queue import Paused, Queue
from fairlane.model.segment import messages
from fairlane.store.contract.journal import Backlog
from fairlane.store.contract.limits import Allowance
from fairlane.wire.pauses import Explained, GlobalPauses, LaneDetail, LanePage, LanesQuery
from fairlane.wire.pauses import Pauses as PauseList

_MANY = 1_000_000
_FIRST, _LAST = "\x01", "\U0010ffff"
"""Bounds of names: before every name, and after every name with the same prefix."""
_LANES_AT_ONCE = 1000
_LANES_MAX = 5000
"""Lanes checked for one page, so that it takes a moment at most, however many partitions there are."""


class Pauses(Resource):
    """Pauses of queues, groups, partitions and lanes, by name, and of all pops or pushes."""

    async def pause_pops(self, paused: bool) -> None:
        """Pause or resume the pops of all tenants, at every broker of the store within two seconds.

        A paused pop is answered as if its queue were empty.
        """
        await self._engine.flags.set(POPS_PAUSED, paused)
        self._engine.waiters.wake_all()  # waiting polls end with an empty answer, or continue

    async def pause_pushes(self, paused: bool) -> None:
        """Keep the pushes of all tenants in the journals of their brokers, or store them again.

        Raises NotAvailable without a journal.
        """
        if self._engine.journal is not None:
            await self._engine.flags.set(PUSHES_PAUSED, paused)
            self._engine.write_router.journal_changed.set()
        elif paused:
            raise NotAvailable("pushes cannot wait: this broker has no journal for them")

    async def pause(self, queue: str, *, group: str | None = None, partition: str | None = None) -> None:
        """Pause a queue, one group, one partition for all groups, or one lane if both are given, until it is resumed.

        Pushes and acks continue. Raises NotFound if the target does not exist. Pausing twice is a no-op.
        """
        found, group_id, partition_id = await self._find(queue, group, partition)
        if not await self._store.pauses.pause(found.id, group_id=group_id, partition=partition_id):
            raise NotFound(f"queue {queue!r} was deleted, or its group has not begun to read the partition")

    async def resume(self, queue: str, *, group: str | None = None, partition: str | None = None) -> bool:
        """Undo `pause` of the same target. Returns False if it was not paused.

        A blocked or parked lane restarts its attempts.
        """
        found, group_id, partition_id = await self._find(queue, group, partition)
        resumed = await self._store.pauses.resume(found.id, group_id=group_id, partition=partition_id)
        self._engine.announcer.announce(found.id, _MANY)
        return resumed

    async def resume_lanes(self, queue: str, group: str = QUEUE_MODE) -> int:
        """Resume every blocked or parked lane of a group. Returns their number."""
        found, group_id, _ = await self._find(queue, group, None)
        assert group_id is not None, "a named group exists"
        resumed = await self._store.pauses.resume_lanes(group_id)
        self._engine.announcer.announce(found.id, _MANY)
        return resumed

    async def skip(self, queue: str, group: str = QUEUE_MODE, *, partition: str | None = None) -> int:
        """Dead-letter the message that stops each blocked or parked lane, and resume these lanes.

        With `partition`, only of that lane. Returns the number of messages. Lanes that an operator parked have none.
        """
        found, group_id, partition_id = await self._find(queue, group, partition)
        assert group_id is not None, "a named group exists"
        skipped, done = 0, set[PartitionId]()  # a lane that its next message stops meanwhile is left alone
        while True:
            if partition_id is None:
                some = await self._store.groups.urgent(group_id, limit=_LANES_AT_ONCE)
            else:
                some = await self._store.groups.lanes(group_id, partition=partition_id, limit=1)
            stopped = [
                lane
                for lane in some
                if lane.stopped in ("blocked", "parked") and lane.attempts and lane.partition not in done
            ]
            done |= {lane.partition for lane in stopped}
            for lane in stopped:
                died = await self._store.browse.dead_letter(lane.partition, group_id, lane.committed, BY_HAND)
                skipped += died == "dead"
                await self._store.pauses.resume(found.id, group_id=group_id, partition=lane.partition)
            if partition_id is not None or not stopped:
                break
        self._engine.announcer.announce(found.id, _MANY)
        return skipped

    async def everywhere(self) -> GlobalPauses:
        """Return the verbs that are paused for all queues of all tenants."""
        flags = self._engine.flags
        return GlobalPauses(pops=await flags.is_on(POPS_PAUSED), pushes=await flags.is_on(PUSHES_PAUSED))

    async def all(self, queue: str) -> PauseList:
        """Return the pauses of a queue with their start times. Raises NotFound."""
        found, _, _ = await self._find(queue, None, None)
        paused = await self._store.pauses.paused(found.id)
        return PauseList(
            queue=found.name,
            paused_at=moment_or_none(paused.queue_at),
            groups={name: Moment(at) for name, at in paused.groups.items()},
            partitions={name: Moment(at) for name, at in paused.partitions.items()},
        )

    async def explain(self, queue: str, partition: str, group: str = QUEUE_MODE) -> Explained:
        """Explain why a lane does not advance. Raises NotFound if queue, group or partition do not exist."""
        found, lane, paused = await self._lane(queue, partition, group)
        acks = await self._waiting_acks(lane.partition, found, group)
        now = await self._store.now()
        allowances = await self._allowances(found, group, lane)
        explained = explain(
            lane, found, paused, group=group, now=now, acks=acks, seals=self._store.seals, allowances=allowances
        )
        id = await self._transaction_id(lane) if lane.attempts else None
        return msgspec.structs.replace(explained, partition_id=str(lane.partition), transaction_id=id)

    async def _allowances(self, queue: Queue, group: str, lane: LaneState) -> list[Allowance]:
        """Return what the limits of the group and of the lane's key allow. Empty for a queue without limits."""
        options = queue.options
        keys = [""] if options.max_running or options.rate else []
        if options.limits_keys:
            keys.append(options.key_of(lane.name))
        group_id = (await self._catalogue.existing_group(queue, group)).id if keys else 0
        found = [await self._store.limits.state(group_id, key=key) for key in keys]
        return [one for one in found if one is not None]

    async def _transaction_id(self, lane: LaneState) -> str | None:
        """Return the transactionId of the first message of a lane. None if it was deleted."""
        segments = await self._store.messages.read(lane.partition, lane.committed, lane.committed + 1)
        first = next(messages(segments, lane.committed, lane.committed + 1), None)
        return None if first is None else first.transaction_id

    async def _waiting_acks(self, partition: PartitionId, queue: Queue, group: str) -> int:
        """Count the acks of a lane that were accepted and are not applied yet, in the store and in this journal."""
        group_id = (await self._catalogue.existing_group(queue, group)).id
        acks = await self._store.operations.acks(partition, group_id)
        if (journal := self._engine.journal) is not None:
            acks += journal.count(Backlog("ack", self._tenant, group, str(partition)))
        return acks

    async def lane(self, queue: str, partition: str, group: str = QUEUE_MODE) -> LaneDetail:
        """Return the state of a lane. Raises NotFound if queue, group or partition do not exist."""
        found, lane, paused = await self._lane(queue, partition, group)
        return shown(lane, found, paused, group=group, now=await self._store.now())

    async def _lane(self, queue: str, partition: str, group: str) -> tuple[Queue, LaneState, Paused]:
        found, group_id, partition_id = await self._find(queue, group, partition)
        assert group_id is not None, "a named group exists"
        lanes = await self._store.groups.lanes(group_id, partition=partition_id, limit=1)
        if not lanes:
            raise NotFound(f"group {group!r} has not begun to read partition {partition!r}; ask again soon")
        return found, lanes[0], await self._store.pauses.paused(found.id)

    async def lanes(self, queue: str, query: LanesQuery) -> LanePage:
        """Return the matching lanes of a group, by the name of their partition.

        Names that begin with the search text come first, because they are found quickly.
        """
        group, search, after = query.group or QUEUE_MODE, query.search, query.after
        found, group_id, _ = await self._find(queue, group, None)
        assert group_id is not None, "a named group exists"
        paused, now = await self._store.pauses.paused(found.id), await self._store.now()
        if query.sort == "urgent":
            if search or after or query.state:
                raise InvalidRequest(
                    "`sort=urgent` cannot be searched, and is one page: leave out search, state, after"
                )
            urgent = await self._store.groups.urgent(group_id, limit=query.limit)
            first = [shown(lane, found, paused, group=group, now=now) for lane in urgent]
            return LanePage(queue=queue, group=group, lanes=first, next=None, complete=len(first) < query.limit)
        if query.state in ("blocked", "parked") and not search and not after:  # an index has them, up to a limit
            urgent = await self._store.groups.urgent(group_id, limit=_LANES_AT_ONCE)
            stopped = [shown(lane, found, paused, group=group, now=now) for lane in urgent if lane.stopped]
            if len(stopped) < len(urgent) or len(urgent) < _LANES_AT_ONCE:
                some = sorted([one for one in stopped if one.state == query.state], key=lambda one: one.partition)
                if len(some) <= query.limit:
                    return LanePage(queue=queue, group=group, lanes=some, next=None, complete=True)
        matching: list[LaneDetail] = []
        answer = partial(LanePage, queue=queue, group=group, lanes=matching)

        def add(lane: LaneState) -> bool:
            """Add a lane if it matches. Returns False if the page is full."""
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
        # Most pages show what comes next. Only one that filters checks more than it shows.
        at_once = _LANES_AT_ONCE if search or query.state else query.limit + 1
        begin = after
        for _ in range(_LANES_MAX // _LANES_AT_ONCE):
            lanes = await self._store.groups.lanes(group_id, after=begin, limit=at_once)
            for lane in lanes:
                if search and lane.name.startswith(search):
                    begin = f"{search}{_LAST}"  # these were shown before; continue after them
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
