"""Stored messages, one at a time: looked at whole, deleted, retried, given up."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name
from typing import Any, Final

import msgspec

from fairlane.broker.browse import common_of, mode_of, status_of
from fairlane.broker.part import Part
from fairlane.broker.push_batch import PushRequest
from fairlane.errors import Conflict, NotFound
from fairlane.model.idempotency import replayed
from fairlane.model.ids import PartitionId, known_partition
from fairlane.model.limits import BATCH_ITEMS_MAX, ERROR_CHARS_MAX
from fairlane.model.message import Message
from fairlane.model.moment import Moment, When, micros_of, moment_or_none
from fairlane.model.names import check_count, check_name, storable
from fairlane.model.queue import Partition, Queue
from fairlane.model.segment import Opened, messages
from fairlane.store.contract.values import DeadFilter, StoredLetter
from fairlane.wire.base import made
from fairlane.wire.browse import (
    BrowsedMessage,
    DetailMode,
    GroupView,
    MessagePage,
    MessageQuery,
    QueueConfig,
    ResultView,
)

BY_HAND: Final = "moved to the dead letters by hand"
"""Error of a dead letter for which the caller gave none."""


class Messages(Part):
    async def list(
        self,
        queue: str | None = None,
        *,
        partition: str | None = None,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        since: When = 0,
        limit: int = 100,
        before: str | None = None,
    ) -> MessagePage:
        """Messages without their payloads, newest first, of a queue or of all: those created at or after `since`,
        microseconds since 1970, with this transactionId or of this trace. `before` is the `next` of the page before."""
        limit = check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        query = MessageQuery(
            queue=queue,
            partition=partition,
            transaction_id=transaction_id,
            trace_id=trace_id,
            since=micros_of("since", since),
            limit=limit,
            before=before,
        )
        return await self._broker.browse.page(query)

    async def get(self, partition_id: str, transaction_id: str) -> BrowsedMessage:
        """One message, whole, or NotFound."""
        queue, where, message, sealed = await self._find(partition_id, transaction_id)
        options, position = queue.options, message.position
        standings = await self._store.statistics.standings([where.id])
        letters, attempts, error = await self._failures(queue, where.id, position)
        groups = [
            GroupView(
                name=one.group,
                consumed=one.has_finished(position),
                lease_expires_at=moment_or_none(one.lease_ends_at if one.holds(position) else None),
            )
            for one in standings
        ]
        consumed = sum(group.consumed for group in groups)
        results = await self._store.groups.results(where.id, position)
        return made(
            BrowsedMessage,
            message,
            partition_id=str(where.id),
            is_encrypted=sealed,
            status=status_of(position, standings, bool(letters)),
            error_message=error,
            retry_count=attempts,
            max_attempts=message.max_attempts or options.retry_limit + 1,
            queue_config=QueueConfig(
                lease_time=options.lease_seconds,
                retry_limit=options.retry_limit,
                retry_delay=options.retry_delay_ms,
                ttl=options.ttl_seconds,
                priority=options.priority,
            ),
            mode=DetailMode(**mode_of([group.name for group in groups]), consumed_by_groups=consumed),
            consumer_groups=groups,
            results={
                one.group: ResultView(raw=msgspec.Raw(one.result), created_at=Moment(one.created_at)) for one in results
            },
            **common_of(queue, where.name, position, standings),
        )

    async def delete(self, partition_id: str, transaction_id: str) -> None:
        """Delete a message: no group gets it any more."""
        queue, where, message, _ = await self._find(partition_id, transaction_id)
        if not await self._store.browse.delete(where.id, message.position):
            raise NotFound("Message not found")
        self._broker.announcer.announce(queue.id, 1)

    async def retry(self, partition_id: str, transaction_id: str) -> str:
        """A dead letter is replayed; a message that was finished is pushed again as a copy that names it. The id of the
        new message."""
        queue, where, message, _ = await self._find(partition_id, transaction_id)
        letters, *_ = await self._failures(queue, where.id, message.position)
        if letters:
            if done := await self._broker.dead_letters.replay(queue.name, DeadFilter(ids=[letters[0].id])):
                return done[0][1]
            raise Conflict(f"the message was replayed before, as {letters[0].replayed_as}")
        standings = await self._store.statistics.standings([where.id])
        if status_of(message.position, standings, dead=False) != "completed":
            raise Conflict("the message is not finished yet: it comes by itself when its lane has reached it")
        again = PushRequest(self._tenant, [replayed(message, queue.name, where.name)])
        [outcome] = await self._broker.intake.push(again)
        if outcome.error is not None:
            raise outcome.error
        return outcome.message_id or ""

    async def dead_letter(
        self, partition_id: str, transaction_id: str, *, group: str | None = None, error: str | None = None
    ) -> List[str]:
        """Give a message up for a group, or for all that have not finished it; their names."""
        queue, where, message, _ = await self._find(partition_id, transaction_id)
        groups = await self._store.groups.list(queue.id)
        if group is not None:
            groups = [one for one in groups if one.name == group]
            if not groups:
                raise NotFound("Consumer group not found")
        why = storable(error or BY_HAND, chars_max=ERROR_CHARS_MAX)
        give_up = self._store.browse.dead_letter
        dead = [one.name for one in groups if await give_up(where.id, one.id, message.position, why) == "dead"]
        if not dead:
            raise Conflict("no group has this message still before it, so there is none that could give it up")
        self._broker.announcer.announce(queue.id, 1)
        return dead

    async def _find(self, partition_id: str, transaction_id: str) -> tuple[Queue, Partition, Message[Any], bool]:
        """Return the message, its queue and partition, and whether it is stored sealed. Raises NotFound."""
        partition, transaction_id = message_at(partition_id, transaction_id)
        found = await self._store.queues.partition(partition, self._tenant)
        position = await self._store.messages.find(partition, transaction_id) if found else None
        queues = {queue.id: queue for queue in await self._store.queues.list(self._tenant)} if found else {}
        if found is None or position is None or found.queue_id not in queues:
            raise NotFound("Message not found")
        segments = await self._store.messages.read(partition, position, position + 1)
        message = next(messages(segments, position, position + 1), None)
        if message is None:
            raise NotFound("Message not found")
        return queues[found.queue_id], found, message, isinstance(segments[0], Opened)

    async def _failures(
        self, queue: Queue, partition: PartitionId, position: int
    ) -> tuple[List[StoredLetter], int, str | None]:
        """Its dead letters, and the failed attempts and last error of the group that had most."""
        letters, attempts, error = [], 0, None
        for group in await self._store.groups.list(queue.id):
            letter = await self._store.dead_letters.get(queue.id, f"{partition}-{group.id}-{position}")
            if letter is not None:
                letters.append(letter)
                if letter.attempts > attempts:
                    attempts, error = letter.attempts, letter.error
            for lane in await self._store.groups.lanes(group.id, partition=partition):
                if lane.committed == position and lane.attempts > attempts:
                    attempts, error = lane.attempts, lane.error
        return letters, attempts, error


def message_at(partition_id: str, transaction_id: str) -> tuple[PartitionId, str]:
    """Partition and transactionId of a message. What is no partition's id names no message."""
    partition = known_partition(partition_id)
    if partition is None:
        raise NotFound("Message not found")
    return partition, check_name("transactionId", transaction_id)
