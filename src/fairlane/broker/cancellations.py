"""Cancellations: take a message away from consumer groups, whether it is scheduled, waits or is being handled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from fairlane.broker.resource import Resource
from fairlane.errors import Conflict, InvalidRequest, LaneWaiting, NotFound
from fairlane.model.ids import PartitionId, known_partition
from fairlane.model.lease import LeaseId
from fairlane.model.names import DEFAULT_PARTITION, check_name, name_or_none
from fairlane.model.queue import PRIORITY_MAX, Queue, with_priority
from fairlane.wire.cancellations import LEASES_MAX, WATCH_MS_MAX, Before, CancelledInLease, CancelledMessage

if TYPE_CHECKING:
    from fairlane.store.contract.cancellations import CancelledLane

GAP_SECONDS = 0.2
"""Pause of a watch between lookups, because other events of the queue wake it, too."""


class Cancellations(Resource):
    async def cancel(
        self,
        queue: str,
        transaction_id: str,
        *,
        partition: str | PartitionId = DEFAULT_PARTITION,
        group: str | None = None,
    ) -> CancelledMessage:
        """Cancel a message for a group, or for all that have not finished it and for groups created later.

        It is not delivered again, also after a seek, and does not become a dead letter. Other messages of its lane go
        on. A consumer that handles it is notified, and its ack is refused. Cancelling it again is a no-op. Raises
        NotFound, Conflict if it is finished, or LaneWaiting if it may be accepted and not stored yet.
        """
        there = await self._catalogue.existing(self._tenant, queue)
        if isinstance(partition, PartitionId):
            await self._catalogue.owned(self._tenant, partition)
        check_name("transactionId", transaction_id)
        group_id = 0 if name_or_none("group", group) is None else await self._group(there, group or "")
        partitions = await self._partitions(there, partition)
        for _ in range(2):  # a scheduled message may become due between the two lookups
            for id in partitions:
                position = await self._store.messages.find(id, transaction_id)
                if position is not None:
                    return await self._cancel(there, id, position, transaction_id, group_id, group)
            for id in partitions:
                if await self._store.cancellations.cancel_scheduled(id, transaction_id):
                    return await self._answer(there, id, transaction_id, "scheduled", [])
        for id in partitions:
            if await self._store.cancellations.was_scheduled(id, transaction_id):
                return await self._answer(there, id, transaction_id, "cancelled", [])
        if queue in {one.queue for one in await self._store.operations.backlogs(self._tenant)}:
            raise LaneWaiting(
                f"there is no message {transaction_id!r:.80} yet, but pushes of the queue wait as operations; try again"
            )
        raise NotFound(f"there is no message {transaction_id!r:.80} in this partition of {queue!r:.80}")

    async def at(self, partition_id: str, transaction_id: str, *, group: str | None = None) -> CancelledMessage:
        """Cancel a message by the id of its partition."""
        partition = known_partition(partition_id)
        queue, _ = await self._catalogue.names(self._tenant, partition) if partition else (None, None)
        if partition is None or queue is None:
            raise NotFound("Message not found")
        return await self.cancel(queue, transaction_id, partition=partition, group=group)

    async def watch(self, leases: Sequence[str], *, wait: float = 0.0) -> list[CancelledInLease]:
        """Return the messages that were cancelled while one of these leases held them.

        Waits up to `wait` seconds for the first. Leases of other tenants hold nothing.
        """
        if len(leases) > LEASES_MAX or not 0 <= wait * 1000 <= WATCH_MS_MAX:
            raise InvalidRequest(f"a watch takes {LEASES_MAX} leases and {WATCH_MS_MAX / 1000:g} seconds at most")
        parsed = [lease for lease in map(LeaseId.parse, leases) if lease is not None]
        queues = {id: await self._catalogue.queue_of(self._tenant, id) for id in {lease.group_id for lease in parsed}}
        mine = [lease for lease in parsed if queues[lease.group_id] is not None]
        lines = [(queue_id, (group_id, "cancelled")) for group_id, queue_id in queues.items() if queue_id is not None]
        waiters, give_up_at = self._engine.result_waiters, monotonic() + wait
        while True:
            # Before the lookup, so that no cancellation is missed in between.
            parked = [waiters.park(*line) for line in lines]
            try:
                found = await self._store.cancellations.of_leases(mine)
                left = give_up_at - monotonic()
                if found or left <= 0 or waiters.ended or not parked:
                    return [
                        CancelledInLease(lease_id=str(lease), partition_id=str(id), position=at)
                        for lease, id, at in found
                    ]
                await waiters.wait(parked, left)
            finally:
                for line, future in zip(lines, parked, strict=True):
                    waiters.remove(*line, future)
            await asyncio.sleep(min(GAP_SECONDS, max(0.0, give_up_at - monotonic())))

    async def _cancel(
        self, queue: Queue, id: PartitionId, position: int, transaction_id: str, group_id: int, group: str | None
    ) -> CancelledMessage:
        lanes = await self._store.cancellations.cancel(id, group_id, position)
        if not lanes:
            raise NotFound(f"message {transaction_id!r:.80} was deleted meanwhile")
        gone = [lane for lane in lanes if lane.state != "finished"]
        if not gone:
            who = "every group has" if group is None else f"group {group!r:.80} has"
            raise Conflict(f"{who} finished message {transaction_id!r:.80}, so there is nothing to cancel")
        self._wake(queue.id, id, gone)
        changed = [lane for lane in gone if lane.state == "cancelled"]
        before: Before = "cancelled" if not changed else "pending"
        if any(lane.token is not None for lane in changed):
            before = "processing"
        names = {one.id: one.name for one in await self._store.groups.all(queue.id)}
        groups = [names[lane.group_id] for lane in gone if lane.group_id in names]
        return await self._answer(queue, id, transaction_id, before, groups)

    def _wake(self, queue_id: int, partition: PartitionId, lanes: Sequence[CancelledLane]) -> None:
        """Wake polls of lanes that may be ready, callers that wait for the result, and holders of the message."""
        for lane in lanes:
            for key in ((lane.group_id, "cancelled"), (lane.group_id, str(partition))):
                self._engine.result_waiters.wake_line(queue_id, key)
        self._engine.result_waiters.wake_line(queue_id, (0, ""))
        self._engine.announcer.announce(queue_id, 1)

    async def _answer(
        self, queue: Queue, id: PartitionId, transaction_id: str, before: Before, groups: Sequence[str]
    ) -> CancelledMessage:
        _, partition = await self._catalogue.names(self._tenant, id)
        return CancelledMessage(
            queue=queue.name,
            partition=partition or "",
            partition_id=str(id),
            transaction_id=transaction_id,
            before=before,
            consumer_groups=sorted(groups),
        )

    async def _group(self, queue: Queue, name: str) -> int:
        return (await self._catalogue.existing_group(queue, name)).id

    async def _partitions(self, queue: Queue, partition: str | PartitionId) -> list[PartitionId]:
        """Return the partitions where the message may be: one, or in an unordered queue one for each priority."""
        if isinstance(partition, PartitionId):
            return [partition]
        check_name("partition", partition)
        priorities = range(PRIORITY_MAX + 1) if queue.options.ordering == "unordered" else range(1)
        found = [await self._store.queues.named(queue.id, with_priority(partition, one)) for one in priorities]
        return [one.id for one in found if one is not None]
