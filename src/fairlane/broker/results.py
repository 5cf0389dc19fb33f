"""Results of messages: values from the acks of a group, looked up and waited for."""

from __future__ import annotations

import asyncio
from time import monotonic

import msgspec

from fairlane.broker.progress import progress_by_group
from fairlane.broker.resource import Resource
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.ids import PartitionId, known_partition
from fairlane.model.limits import WAIT_SECONDS_MAX
from fairlane.model.names import COMMANDS, DEFAULT_PARTITION, QUEUE_MODE, check_name, name_or_none
from fairlane.wire.base import NULL
from fairlane.wire.browse import MessageResult

LOOK_SECONDS = 2.0
"""Interval of a waiting lookup, because a dead letter without an ack wakes no waiter."""
GAP_SECONDS, GAP_SECONDS_MAX = 0.01, 0.25
"""Pause between lookups that were woken by acks of other messages: the first, and the longest."""


class Results(Resource):
    """Results of a tenant's messages.

    Waiting callers count as long polls, and wait in `awaited`, which acks wake by lane.
    """

    async def get(
        self,
        queue: str,
        transaction_id: str,
        *,
        partition: str | PartitionId = DEFAULT_PARTITION,
        group: str | None = None,
        wait: float = 0.0,
    ) -> MessageResult:
        """Return the outcome of a message for a group, and the result of its ack.

        With `wait`, waits until the group has finished or dead-lettered it, for at most this many seconds. A message
        that is not stored yet is waited for as well. For a replayed dead letter, returns the result of the new message.
        The default `group` is the one that runs commands, the queue's own, or the only one. Raises NotFound.
        """
        there = await self._catalogue.existing(self._tenant, queue)
        if isinstance(partition, PartitionId):
            await self._catalogue.owned(self._tenant, partition)
        check_name("transactionId", transaction_id)
        name_or_none("group", group)
        if not 0 <= wait <= WAIT_SECONDS_MAX:
            raise InvalidRequest(f"wait is {wait}; it must be between 0 and {WAIT_SECONDS_MAX} seconds")
        give_up_at, gap = monotonic() + wait, GAP_SECONDS
        while True:
            reader, group_id = await self._reader(there.id, group)
            at = partition if isinstance(partition, PartitionId) else await self._named(there.id, partition)
            key = (group_id, str(at)) if group_id and at else (0, "")
            # Before the lookup, so that no ack is missed in between.
            parked = self._engine.result_waiters.park(there.id, key)
            try:
                found = at and await self._result(there.id, reader, group_id, at, transaction_id)
                left = give_up_at - monotonic()
                if left <= 0 or self._engine.result_waiters.ended or (found and found.over):
                    if not found:
                        raise NotFound(f"there is no message {transaction_id!r:.80} in this partition of {queue!r:.80}")
                    return found
                await self._engine.waiters.wait([parked], min(left, LOOK_SECONDS))
            finally:
                self._engine.result_waiters.remove(there.id, key, parked)
            if parked.done():
                await asyncio.sleep(min(gap, left))
                gap = min(2 * gap, GAP_SECONDS_MAX)

    async def at(
        self, partition_id: str, transaction_id: str, *, group: str | None = None, wait: float = 0.0
    ) -> MessageResult:
        """Return the outcome of a message by the id of its partition."""
        partition = known_partition(partition_id)
        queue, _ = await self._catalogue.names(self._tenant, partition) if partition else (None, None)
        if partition is None or queue is None:
            raise NotFound("Message not found")
        return await self.get(queue, transaction_id, partition=partition, group=group, wait=wait)

    async def _reader(self, queue_id: int, group: str | None) -> tuple[str, int]:
        """Return the group whose result counts, and its id. 0 if it has not begun."""
        known = {one.name: one.id for one in await self._store.groups.all(queue_id)}
        if group is None:
            group = next((one for one in (COMMANDS, QUEUE_MODE) if one in known), None)
            group = group or (next(iter(known)) if len(known) == 1 else QUEUE_MODE)
        return group, known.get(group, 0)

    async def _named(self, queue_id: int, name: str) -> PartitionId | None:
        found = await self._store.queues.named(queue_id, check_name("partition", name))
        return found.id if found else None

    async def _result(
        self, queue_id: int, group: str, group_id: int, partition: PartitionId, transaction_id: str
    ) -> MessageResult | None:
        position = await self._store.messages.find(partition, transaction_id, deleted=True)
        waiting = MessageResult(
            partition_id=str(partition), transaction_id=transaction_id, consumer_group=group, status="pending"
        )
        if position is None:
            cancelled = await self._store.cancellations.was_scheduled(partition, transaction_id)
            return msgspec.structs.replace(waiting, status="cancelled") if cancelled else None
        if not group_id and 0 in await self._store.cancellations.at(partition, position):
            return msgspec.structs.replace(waiting, status="cancelled")
        while group_id and position is not None:
            found, replayed_as = await self._at(waiting, queue_id, group_id, position)
            if replayed_as is None:
                return found
            # A replayed message has its id as its transactionId. It is not found while it waits as an operation.
            waiting = msgspec.structs.replace(waiting, replayed_as=replayed_as)
            position = await self._store.messages.find(partition, replayed_as, deleted=True)
        return waiting

    async def _at(
        self, found: MessageResult, queue_id: int, group_id: int, position: int
    ) -> tuple[MessageResult, str | None]:
        """Return `found` with the result of the message at a position, and the id it was replayed as, if it was."""
        partition, group = PartitionId.parse(found.partition_id), found.consumer_group
        # Read the state before the result: in the other order, an ack between the two would look like none.
        standings = [one for one in await self._store.statistics.standings([partition]) if one.group == group]
        result = await self._store.groups.result(group_id, partition, position)
        if result is not None:
            return msgspec.structs.replace(found, status="completed", raw=msgspec.Raw(result)), None
        letter = await self._store.dead_letters.get(queue_id, f"{partition}-{group_id}-{position}")
        if letter is not None:
            given_up = msgspec.structs.replace(
                found, status="dead_letter", error=letter.error, dead_letter_id=letter.id
            )
            return given_up, letter.replayed_as
        if group_id in await self._store.cancellations.at(partition, position):
            return msgspec.structs.replace(found, status="cancelled"), None
        if any(one.has_finished(position) for one in standings):
            return msgspec.structs.replace(found, status="completed", raw=NULL), None
        progress = (await progress_by_group(self._store, queue_id, partition, position)).get(group)
        leased = progress is not None or any(one.holds(position) for one in standings)
        return msgspec.structs.replace(found, status="processing" if leased else "pending", progress=progress), None
