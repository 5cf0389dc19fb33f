"""Looking at operations, and what people do with those that failed."""

from __future__ import annotations

from uuid import UUID

import msgspec

from fairlane.engine.capacity import full
from fairlane.engine.catalogue import Catalogue
from fairlane.engine.journal_operations import JournalOperations
from fairlane.engine.processor import Processor
from fairlane.errors import Conflict, NotFound
from fairlane.model.operation import Operation
from fairlane.model.queue import Partition, Queue
from fairlane.store.base import Store
from fairlane.store.operations import NewOperation, Waits
from fairlane.store.values import Full


class Operations:
    def __init__(self, store: Store, catalogue: Catalogue, processor: Processor) -> None:
        self._store = store
        self._catalogue = catalogue
        self._processor = processor
        self.journal: JournalOperations | None = None
        """Where operations of this broker wait while the store cannot take them."""

    async def get(self, tenant: str, id: UUID) -> Operation:
        """In the journal first: what is not there any more is in the store."""
        found = await self.journal.find(tenant, id) if self.journal is not None else None
        found = found or await self._store.operations.get(tenant, id)
        if found is None:
            raise NotFound(
                f"there is no operation {id} here: completed ones are removed after an hour, and one that waits in the "
                "journal of another broker is known to that broker alone until it is applied"
            )
        return found

    async def retry(self, tenant: str, id: UUID) -> Operation:
        """Let a failed operation wait again, at the end of its lane; if its queue was made anew, in that one."""
        found = await self.get(tenant, id)
        if found.durability == "journal" and self.journal is not None:
            if found.status != "failed":
                raise Conflict(f"only a failed operation can be retried; this one is {found.status}")
            await self.journal.retry(id)
            return await self.get(tenant, id)
        queue = await self._catalogue.queue(tenant, found.queue, make=False)
        if queue is None:
            raise Conflict(f"queue {found.queue!r} is not there: make it first, or discard the operation")
        partition = (await self._catalogue.partitions(queue, [found.partition_name]))[found.partition_name]
        result = await self._store.operations.retry(tenant, id, await self._anew(found, queue, partition))
        if result is None:
            raise Conflict(f"only a failed operation can be retried; this one is {found.status}")
        if isinstance(result, Full):
            raise full(result)
        if not isinstance(result, Waits):
            self._catalogue.forget(queue.id)
            raise Conflict(f"queue {found.queue!r} is being changed; try again")
        self._processor.kept(1)
        return await self.get(tenant, id)

    async def _anew(self, found: Operation, queue: Queue, partition: Partition) -> NewOperation:
        group_id = found.group_id
        if found.group:
            known = await self._catalogue.group_id(queue.id, found.group)
            if known is None:
                raise Conflict(f"queue {found.queue!r} has no group {found.group!r} (any more); discard the operation")
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

    async def discard(self, tenant: str, id: UUID) -> Operation:
        found = await self.get(tenant, id)
        if found.durability == "journal" and self.journal is not None:
            if found.status != "failed":
                raise Conflict("this operation waits in the journal, where only a failed one can be discarded")
            await self.journal.discard(id)
            return msgspec.structs.replace(found, status="discarded")
        if not await self._store.operations.discard(tenant, id):
            found = await self.get(tenant, id)
            raise Conflict(f"only a pending or failed operation can be discarded; this one is {found.status}")
        return await self.get(tenant, id)
