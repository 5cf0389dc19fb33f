"""Operations for people: look up, list, and retry or discard failed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from fairlane.broker.capacity import full
from fairlane.broker.resource import Resource
from fairlane.errors import Conflict, FairlaneError, InvalidRequest, NotFound, QueueFull, Unavailable
from fairlane.model.ids import PartitionId, parse_uuid
from fairlane.model.operation import PRIORITIES, Operation, OperationStatus, OperationType, ack_type
from fairlane.model.queue import Partition, Queue
from fairlane.store.contract.journal import Entry
from fairlane.store.contract.operations import FIRST, Enqueued, NewOperation
from fairlane.store.contract.values import Full

Verb = Literal["retry", "discard"]
_PAGE: Final = 100


class Page(NamedTuple):
    operations: list[Operation]
    end: UUID | None
    """Start of the next page. None on the last one."""
    complete: bool
    """True if the store answered as well."""


class Settled(NamedTuple):
    done: list[UUID]
    refused: list[tuple[UUID, FairlaneError]]
    end: UUID | None
    """Id to continue after. None at the end."""


class Operations(Resource):
    async def get(self, id: str | UUID) -> Operation:
        """Return the state of an operation. Raises NotFound."""
        # The journal first: an operation that has left it is in the store.
        id = _id(id)
        entry = await self._engine.journal.find(id) if self._engine.journal is not None else None
        if entry is not None and entry.backlog.tenant == self._tenant:
            return self._in_journal(entry)
        found = await self._store.operations.get(self._tenant, id)
        if found is None:
            raise NotFound(
                f"there is no operation {id} here: completed ones are removed after an hour, and one in the journal of "
                "another broker is known to that broker alone"
            )
        return found

    def _in_journal(self, entry: Entry) -> Operation:
        kind, tenant, name, partition = entry.backlog
        type_: OperationType = "PUSH"
        queue: str | None = name
        group, where = "", PartitionId(0, 0)
        if kind == "ack":
            type_, group, where = ack_type(entry.messages), name, PartitionId.parse(partition)
            queue, label = self._catalogue.known_names(tenant, where)
            partition = label or partition
        return Operation(
            id=entry.id,
            type=type_,
            status="pending" if entry.error is None else "failed",
            priority=PRIORITIES[type_],
            tenant=tenant,
            queue=queue or "",
            partition_name=partition,
            group=group,
            partition=where,
            sequence=entry.seq,
            size=len(entry.body),
            messages=entry.messages if kind == "push" else 0,
            created_at=entry.created_at,
            error=entry.error,
            durability="journal",
        )

    async def all(
        self, *, status: OperationStatus | None = None, queue: str | None = None, limit: int = 100
    ) -> list[Operation]:
        """Return operations in the order of their acceptance, optionally by status or queue."""
        found: list[Operation] = []
        after: UUID | None = FIRST
        while after is not None and len(found) < limit:
            page = await self.page(status=status, queue=queue, after=after, limit=min(_PAGE, limit - len(found)))
            found, after = [*found, *page.operations], page.end
        return found

    async def retry_failed(self, ids: Sequence[str] | None = None, *, queue: str | None = None) -> Settled:
        """Retry failed operations: by id, by queue, or all."""
        return await self._settle_all("retry", ids, queue)

    async def discard_failed(self, ids: Sequence[str] | None = None, *, queue: str | None = None) -> Settled:
        """Discard failed operations for good: by id, by queue, or all."""
        return await self._settle_all("discard", ids, queue)

    async def _settle_all(self, verb: Verb, ids: Sequence[str] | None, queue: str | None) -> Settled:
        if ids is not None and queue is not None:
            raise InvalidRequest("name the ids of operations, or their queue, not both")
        after, done, refused = FIRST, list[UUID](), list[tuple[UUID, FairlaneError]]()
        while True:
            some = await self.settle_failed(verb, ids=ids, queue=queue, after=after, limit=_PAGE)
            done += some.done
            refused += some.refused
            if some.end is None:
                return Settled(done, refused, None)
            after = some.end

    async def page(self, *, status: OperationStatus | None, queue: str | None, after: UUID, limit: int) -> Page:
        """Return operations in the store and in this broker's journal, in the order of their ids.

        While the store is unavailable, only those in the journal.
        """
        operations: list[Operation] = []
        complete = True
        ends: list[UUID] = []
        try:
            stored = await self._store.operations.page(
                self._tenant, status=status, queue=queue, after=after, limit=limit
            )
            operations += stored
            ends += [stored[-1].id] if len(stored) == limit else []
        except Unavailable:
            if self._engine.journal is None:
                raise
            complete = False
        if self._engine.journal is not None and status in (None, "pending", "failed"):
            failed = None if status is None else status == "failed"
            found = await self._engine.journal.page(after, failed=failed, limit=limit)
            mine = [self._in_journal(entry) for entry in found if entry.backlog.tenant == self._tenant]
            operations += [one for one in mine if queue in (None, one.queue)]
            ends += [found[-1].id] if len(found) == limit else []
        # After a full page there may be more of its kind, so the other kind waits there.
        end = min(ends, default=None)
        by_id = {one.id: one for one in operations if end is None or one.id <= end}
        ordered = [by_id[id] for id in sorted(by_id)]
        if len(ordered) > limit:
            ordered = ordered[:limit]
            end = ordered[-1].id
        return Page(ordered, end, complete)

    async def newest(self, *, status: OperationStatus | None, queue: str | None, before: UUID, limit: int) -> Page:
        """Return finished operations, newest first. Raises InvalidRequest for a status that journals have, too."""
        if status not in ("completed", "discarded"):
            raise InvalidRequest("`order=desc` needs `status=completed` or `discarded`: others may be in a journal")
        found = await self._store.operations.newest(self._tenant, status, queue=queue, before=before, limit=limit)
        return Page(found, found[-1].id if len(found) == limit else None, True)

    async def settle_failed(
        self, verb: Verb, *, ids: Sequence[str | UUID] | None, queue: str | None, after: UUID, limit: int
    ) -> Settled:
        """Retry or discard some failed operations: by id, or the next ones of a queue or of all.

        Each is handled alone: one that cannot be changed is reported, and the others continue.
        """
        end: UUID | None = None
        if ids is None:
            page = await self.page(status="failed", queue=queue, after=after, limit=limit)
            # Retried operations keep the order of their backlogs.
            some = sorted(page.operations, key=lambda one: (one.partition, one.group_id, one.sequence))
            ids, end = [one.id for one in some], page.end
        settled = Settled([], [], end)
        for id in [_id(one) for one in ids]:
            try:
                await self._settle(verb, id)
                settled.done.append(id)
            except (NotFound, Conflict, QueueFull) as error:
                settled.refused.append((id, error))
        return settled

    async def _settle(self, verb: Verb, id: UUID) -> None:
        if verb == "retry":
            await self.retry(id)
            return
        found = await self.get(id)
        if found.status != "failed":
            raise Conflict(f"only failed operations can be discarded together; this one is {found.status}")
        await self.discard(id)

    async def retry(self, id: str | UUID) -> Operation:
        """Move a failed operation to the end of its backlog, or to the queue that replaced a deleted one."""
        id = _id(id)
        found = await self.get(id)
        if found.durability == "journal" and self._engine.journal is not None:
            if not await self._engine.journal.retry(id):
                raise Conflict(f"only a failed operation can be retried; this one is {found.status}")
            return await self.get(id)
        queue = await self._catalogue.queue(self._tenant, found.queue, make=False)
        if queue is None:
            raise Conflict(f"queue {found.queue!r} does not exist: create it first, or discard the operation")
        partition = (await self._catalogue.partitions(queue, [found.partition_name]))[found.partition_name]
        result = await self._store.operations.retry(self._tenant, id, await self._moved(found, queue, partition))
        if result is None:
            raise Conflict(f"only a failed operation can be retried; this one is {found.status}")
        if isinstance(result, Full):
            raise full(result)
        if not isinstance(result, Enqueued):
            self._catalogue.forget(queue.id)
            raise Conflict(f"queue {found.queue!r} is being changed; try again")
        self._engine.open_operations.enqueued(1)
        return await self.get(id)

    async def _moved(self, found: Operation, queue: Queue, partition: Partition) -> NewOperation:
        group_id = found.group_id
        if found.group:
            known = await self._catalogue.group_id(queue.id, found.group)
            if known is None:
                raise Conflict(f"queue {found.queue!r} has no group {found.group!r} any more; discard the operation")
            group_id = known
        return NewOperation(
            id=found.id,
            type=found.type,
            partition=partition.id,
            queue_id=queue.id,
            options=queue.options,
            tenant=found.tenant,
            queue=found.queue,
            partition_name=found.partition_name,
            group=found.group,
            group_id=group_id,
            messages=found.messages,
            payload=found.payload,
        )

    async def discard(self, id: str | UUID) -> Operation:
        """Discard a pending or failed operation for good. Raises Conflict if it is neither."""
        id = _id(id)
        found = await self.get(id)
        if found.durability == "journal" and self._engine.journal is not None:
            if not await self._engine.journal.discard(id):
                raise Conflict("this operation waits in the journal, where only a failed one can be discarded")
            return msgspec.structs.replace(found, status="discarded")
        if not await self._store.operations.discard(self._tenant, id):
            found = await self.get(id)
            raise Conflict(f"only a pending or failed operation can be discarded; this one is {found.status}")
        return await self.get(id)


def _id(given: str | UUID) -> UUID:
    id = given if isinstance(given, UUID) else parse_uuid(given)
    if id is None:
        raise InvalidRequest(f"{given!r:.80} is not the id of an operation; use the operationId of a 202 answer")
    return id
