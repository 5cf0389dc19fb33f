"""Stored messages: list, show, delete, retry, dead-letter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fairlane.broker.browse import Browse, lease_expiry, mode_of, status_of
from fairlane.broker.progress import StoredProgress, progress_by_group
from fairlane.broker.push_batch import PushRequest
from fairlane.broker.resource import Resource
from fairlane.errors import Conflict, NotFound
from fairlane.model.idempotency import replayed
from fairlane.model.ids import PartitionId, known_partition
from fairlane.model.lease import LeaseId
from fairlane.model.limits import BATCH_ITEMS_MAX, ERROR_CHARS_MAX, PROGRESS_CHARS_MAX
from fairlane.model.message import Message
from fairlane.model.moment import Moment, When, micros_of, moment_or_none
from fairlane.model.names import check_count, check_name, storable
from fairlane.model.queue import Partition, Queue
from fairlane.model.segment import Opened, messages
from fairlane.store.contract.failures import StoredFailure, StoredLetter
from fairlane.store.contract.values import DeadFilter
from fairlane.store.families.progress import ProgressReport
from fairlane.wire.browse import (
    BrowsedMessage,
    DetailMode,
    GroupView,
    MessagePage,
    MessageQuery,
    ProgressItem,
    QueueConfig,
    ResultView,
)

if TYPE_CHECKING:
    from fairlane.broker.dead_letters import DeadLetters
    from fairlane.broker.engine import TenantScope

BY_HAND: Final = "moved to the dead letters by hand"
"""Error of a dead letter for which the caller gave none."""


class Messages(Resource):
    def __init__(self, scope: TenantScope, dead_letters: DeadLetters) -> None:
        super().__init__(scope)
        self.browse = Browse(scope)
        self._dead_letters = dead_letters

    async def page(
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
        """Return messages without their payloads, newest first, of a queue or of all.

        Filters: created at or after `since` (microseconds since 1970), transactionId, trace. `before` is the `next` of
        the previous page.
        """
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
        return await self.browse.page(query)

    async def leased(self, lease: str) -> list[PartitionId]:
        """Return the partitions of a lease, or none if it has ended."""
        parsed = LeaseId.parse(lease)
        return [] if parsed is None else [one.partition for one in await self._store.messages.leased(parsed)]

    def give_back(self, lease: LeaseId) -> None:
        """Release a lease in the background, because its holder disconnected before it got the answer."""
        self._engine.popper.cleanup.give_back(lease)

    async def get(self, partition_id: str, transaction_id: str) -> BrowsedMessage:
        """Return one message with its payload. Raises NotFound."""
        queue, where, message, sealed = await self._find(partition_id, transaction_id)
        options, position = queue.options, message.position
        standings = await self._store.statistics.standings([where.id])
        letters, failed = await self._failures(queue, where.id, position)
        cancelled = await self._cancelled(where.id, position)
        progress = await progress_by_group(self._store, queue.id, where.id, position)
        groups = [
            GroupView(
                name=one.group,
                consumed=one.has_finished(position) and one.group not in cancelled,
                cancelled=one.group in cancelled,
                lease_expires_at=moment_or_none(one.lease_ends_at if one.holds(position) else None),
                progress=progress.get(one.group),
            )
            for one in standings
        ]
        consumed = sum(group.consumed for group in groups)
        mode = mode_of([group.name for group in groups])
        results = await self._store.groups.results(where.id, position)
        return BrowsedMessage(
            id=message.id,
            transaction_id=message.transaction_id,
            partition_id=str(where.id),
            queue_path=f"{queue.name}/{where.name}",
            queue=queue.name,
            partition=where.name,
            namespace=queue.namespace,
            task=queue.task,
            trace_id=message.trace_id,
            producer_sub=message.producer_sub,
            position=position,
            created_at=Moment(message.created_at),
            lease_expires_at=lease_expiry(position, standings),
            raw=message.raw,
            is_encrypted=sealed,
            type=message.type,
            headers=message.headers,
            status=status_of(position, standings, bool(letters), cancelled),
            error_message=failed.error if failed and failed.attempts else None,
            retry_count=failed.attempts if failed else 0,
            errors=failed.errors if failed and failed.attempts else [],
            max_attempts=message.max_attempts or options.retry_limit + 1,
            queue_config=QueueConfig(
                lease_time=options.lease_seconds,
                retry_limit=options.retry_limit,
                retry_delay=options.retry_delay_ms,
                ttl=options.ttl_seconds,
                priority=options.priority,
            ),
            mode=DetailMode(**msgspec.structs.asdict(mode), consumed_by_groups=consumed),
            consumer_groups=groups,
            results={
                one.group: ResultView(raw=msgspec.Raw(one.result), created_at=Moment(one.created_at)) for one in results
            },
        )

    async def report_progress(self, items: Sequence[ProgressItem]) -> int:
        """Store how far handlers are with messages that their leases hold.

        Returns the number of stored items. Items of leases that ended or belong to other tenants are ignored.
        """
        reports = []
        for item in items:
            lease, partition = LeaseId.parse(item.lease_id), known_partition(item.partition_id)
            if lease is None or partition is None:
                continue
            if await self._catalogue.queue_of(self._tenant, lease.group_id) is not None:
                stored = StoredProgress(item.fraction, storable(item.text, chars_max=PROGRESS_CHARS_MAX))
                reports.append(ProgressReport(lease, partition, item.position, msgspec.json.encode(stored)))
        return await self._store.progress_reports.report(reports, tenant=self._tenant) if reports else 0

    async def delete(self, partition_id: str, transaction_id: str) -> None:
        """Delete a message, so that no group gets it."""
        queue, where, message, _ = await self._find(partition_id, transaction_id)
        if not await self._store.browse.delete(where.id, message.position):
            raise NotFound("Message not found")
        self._engine.announcer.announce(queue.id, 1)

    async def retry(self, partition_id: str, transaction_id: str) -> str:
        """Replay a dead letter, or push a copy of a finished or cancelled message. Returns the id of the new one."""
        queue, where, message, _ = await self._find(partition_id, transaction_id)
        letters, _ = await self._failures(queue, where.id, message.position)
        if letters:
            if done := await self._dead_letters.replay(queue.name, DeadFilter(ids=[letters[0].id])):
                return done[0][1]
            raise Conflict(f"the message was replayed before, as {letters[0].replayed_as}")
        standings = await self._store.statistics.standings([where.id])
        cancelled = await self._cancelled(where.id, message.position)
        if status_of(message.position, standings, False, cancelled) not in ("completed", "cancelled"):
            raise Conflict("the message is not finished yet: it is delivered when its lane reaches it")
        again = PushRequest(self._tenant, [replayed(message, queue.name, where.name)])
        [outcome] = await self._scope.intake.push(again)
        if outcome.error is not None:
            raise outcome.error
        return outcome.message_id or ""

    async def dead_letter(
        self, partition_id: str, transaction_id: str, *, group: str | None = None, error: str | None = None
    ) -> list[str]:
        """Dead-letter a message for a group, or for all groups that have not finished it. Returns their names."""
        queue, where, message, _ = await self._find(partition_id, transaction_id)
        groups = await self._store.groups.all(queue.id)
        if group is not None:
            groups = [one for one in groups if one.name == group]
            if not groups:
                raise NotFound("Consumer group not found")
        why = storable(error or BY_HAND, chars_max=ERROR_CHARS_MAX)
        give_up = self._store.browse.dead_letter
        dead = [one.name for one in groups if await give_up(where.id, one.id, message.position, why) == "dead"]
        if not dead:
            raise Conflict("no group still has to handle this message, so none can dead-letter it")
        self._engine.announcer.announce(queue.id, 1)
        return dead

    async def _cancelled(self, partition: PartitionId, position: int) -> set[str]:
        """Return the groups for which a message was cancelled, with "" for groups to come."""
        return (await self._store.cancellations.among([(partition, position)])).get((partition, position), set())

    async def _find(self, partition_id: str, transaction_id: str) -> tuple[Queue, Partition, Message[Any], bool]:
        """Return the message, its queue and partition, and whether it is stored sealed. Raises NotFound."""
        partition, transaction_id = message_at(partition_id, transaction_id)
        found = await self._store.queues.partition(partition, self._tenant)
        position = await self._store.messages.find(partition, transaction_id) if found else None
        queues = {queue.id: queue for queue in await self._store.queues.all(self._tenant)} if found else {}
        if found is None or position is None or found.queue_id not in queues:
            raise NotFound("Message not found")
        segments = await self._store.messages.read(partition, position, position + 1)
        message = next(messages(segments, position, position + 1), None)
        if message is None:
            raise NotFound("Message not found")
        return queues[found.queue_id], found, message, isinstance(segments[0], Opened)

    async def _failures(
        self, queue: Queue, partition: PartitionId, position: int
    ) -> tuple[list[StoredLetter], StoredLetter | StoredFailure | None]:
        """Return the dead letters of a message, and its failures in the group with the most."""
        groups = [group.id for group in await self._store.groups.all(queue.id)]
        found = [await self._store.dead_letters.get(queue.id, f"{partition}-{id}-{position}") for id in groups]
        letters = [letter for letter in found if letter is not None]
        failures = [*letters, await self._store.groups.failed(partition, position, groups)]
        return letters, max((one for one in failures if one), key=lambda one: one.attempts, default=None)


def message_at(partition_id: str, transaction_id: str) -> tuple[PartitionId, str]:
    """Return partition and transactionId of a message. Raises NotFound for an invalid partition id."""
    partition = known_partition(partition_id)
    if partition is None:
        raise NotFound("Message not found")
    return partition, check_name("transactionId", transaction_id)
