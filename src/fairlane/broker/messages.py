"""Stored messages, one at a time: looked at whole, deleted, retried, given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fairlane.broker.admission import Intake
from fairlane.broker.browse import common_of, mode_of, status_of
from fairlane.broker.dead_letters import DeadLetters
from fairlane.broker.push_batch import PushRequest
from fairlane.errors import Conflict, NotFound
from fairlane.model.group import GroupResult
from fairlane.model.idempotency import replay_headers
from fairlane.model.ids import PartitionId, known_partition
from fairlane.model.limits import ERROR_CHARS_MAX
from fairlane.model.message import Message, PushItem
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import check_name, storable
from fairlane.model.queue import Queue
from fairlane.model.segment import messages
from fairlane.model.stats import Standing
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import DeadFilter, StoredLetter
from fairlane.wire.browse import BrowsedMessage, DetailMode, GroupView, QueueConfig, ResultView, Status


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    message: Message[Any]
    queue: Queue
    partition: str
    partition_id: PartitionId
    status: Status
    standings: list[Standing]
    letters: list[StoredLetter]
    attempts: int
    error: str | None
    results: list[GroupResult]


class Messages:
    def __init__(
        self,
        store: Store,
        tenant: str,
        intake: Intake,
        dead_letters: DeadLetters,
        announce: Callable[[int, int], None],
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._intake = intake
        self._dead_letters = dead_letters
        self._announce = announce

    async def get(self, partition_id: str, transaction_id: str) -> BrowsedMessage:
        """One message, whole, or NotFound."""
        return _shown(await self._detail(partition_id, transaction_id))

    async def delete(self, partition_id: str, transaction_id: str) -> None:
        """Delete a message: no group gets it any more."""
        detail = await self._detail(partition_id, transaction_id)
        if not await self._store.browse.delete(detail.partition_id, detail.message.position):
            raise NotFound("Message not found")
        self._announce(detail.queue.id, 1)

    async def retry(self, partition_id: str, transaction_id: str) -> str:
        """A dead letter is replayed; a message that was finished is pushed again as a copy that names it. The id of the
        new message."""
        detail = await self._detail(partition_id, transaction_id)
        message = detail.message
        if detail.letters:
            where = DeadFilter(ids=[detail.letters[0].id])
            if replayed := await self._dead_letters.replay(detail.queue.name, where):
                return replayed[0][1]
            raise Conflict(f"the message was replayed before, as {detail.letters[0].replayed_as}")
        if detail.status != "completed":
            raise Conflict("the message is not finished yet: it comes by itself when its lane has reached it")
        item = PushItem(
            queue=detail.queue.name,
            partition=detail.partition,
            payload=bytes(message.raw),
            trace_id=message.trace_id,
            type=message.type,
            headers=replay_headers(message.transaction_id, message.headers),
        )
        [outcome] = await self._intake.push(PushRequest(self._tenant, [item]))
        if outcome.error is not None:
            raise outcome.error
        return outcome.message_id or ""

    async def dead_letter(
        self, partition_id: str, transaction_id: str, *, group: str | None = None, error: str | None = None
    ) -> list[str]:
        """Give a message up for a group, or for all that have not finished it; their names."""
        detail = await self._detail(partition_id, transaction_id)
        groups = await self._store.groups.list(detail.queue.id)
        if group is not None:
            groups = [one for one in groups if one.name == group]
            if not groups:
                raise NotFound("Consumer group not found")
        why = storable(error or "moved to the dead letters by hand", chars_max=ERROR_CHARS_MAX)
        partition, position = detail.partition_id, detail.message.position
        give_up = self._store.browse.dead_letter
        dead = [one.name for one in groups if await give_up(partition, one.id, position, why) == "dead"]
        if not dead:
            raise Conflict("no group has this message still before it, so there is none that could give it up")
        self._announce(detail.queue.id, 1)
        return dead

    async def _detail(self, partition_id: str, transaction_id: str) -> Detail:
        partition, transaction_id = message_at(partition_id, transaction_id)
        found = await self._store.queues.partition(partition)
        position = await self._store.messages.find(partition, transaction_id) if found else None
        queues = {queue.id: queue for queue in await self._store.queues.list(self._tenant)} if found else {}
        if found is None or position is None or found.queue_id not in queues:
            raise NotFound("Message not found")
        segments = await self._store.messages.read(partition, position, position + 1)
        message = next(messages(segments, position, position + 1), None)
        if message is None:
            raise NotFound("Message not found")
        queue = queues[found.queue_id]
        standings = await self._store.statistics.standings([partition])
        letters, attempts, error = await self._failures(queue, partition, position)
        return Detail(
            message=message,
            queue=queue,
            partition=found.name,
            partition_id=partition,
            status=status_of(position, standings, bool(letters)),
            standings=standings,
            letters=letters,
            attempts=attempts,
            error=error,
            results=await self._store.groups.results(partition, position),
        )

    async def _failures(
        self, queue: Queue, partition: PartitionId, position: int
    ) -> tuple[list[StoredLetter], int, str | None]:
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


def _shown(detail: Detail) -> BrowsedMessage:
    message, options = detail.message, detail.queue.options
    groups = [
        GroupView(
            name=one.group,
            consumed=one.has_finished(message.position),
            lease_expires_at=moment_or_none(one.lease_ends_at if one.holds(message.position) else None),
        )
        for one in detail.standings
    ]
    consumed = sum(group.consumed for group in groups)
    return BrowsedMessage(
        id=message.id,
        transaction_id=message.transaction_id,
        partition_id=str(detail.partition_id),
        status=detail.status,
        raw=message.raw,
        type=message.type,
        headers=message.headers,
        trace_id=message.trace_id,
        created_at=Moment(message.created_at),
        error_message=detail.error,
        retry_count=detail.attempts,
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
            one.group: ResultView(raw=msgspec.Raw(one.result), created_at=Moment(one.created_at))
            for one in detail.results
        },
        **common_of(detail.queue, detail.partition, message.position, detail.standings),
    )
