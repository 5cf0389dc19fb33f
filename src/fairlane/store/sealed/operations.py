"""Operations, sealed as their messages will be."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from fairlane.errors import SealError
from fairlane.model.ids import PartitionId
from fairlane.model.operation import Operation
from fairlane.store.contract.operations import (
    BACKLOGS_MAX,
    Application,
    ApplyResult,
    ClaimedBacklog,
    EnqueueResult,
    NewOperation,
    Operations,
)
from fairlane.store.sealed.families import Over
from fairlane.store.sealed.vault import BLOB

_LOCKED_MS = 10_000


class SealedOperations(Over):
    _family: Operations

    async def enqueue(self, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        return await self._family.enqueue([await self._sealed_operation(one) for one in operations])

    async def retry(self, tenant: str, id: UUID, anew: NewOperation) -> EnqueueResult | None:
        return await self._family.retry(tenant, id, await self._sealed_operation(anew))

    async def claim(
        self, worker: str, *, backlogs: int = BACKLOGS_MAX, token: UUID | None = None
    ) -> list[ClaimedBacklog]:
        """Backlogs that cannot be opened here are left to a broker that has their key."""
        found = []
        for backlog in await self._family.claim(worker, backlogs=backlogs, token=token):
            try:
                backlog.operations = [await self._opened(one) for one in backlog.operations]
                found.append(backlog)
            except SealError as error:
                await self._family.postpone([backlog.claim], delay_ms=_LOCKED_MS, error=str(error))
        return found

    async def get(self, tenant: str, id: UUID) -> Operation | None:
        found = await self._family.get(tenant, id)
        return None if found is None else await self._opened(found)

    async def apply(self, work: Sequence[Application]) -> list[ApplyResult]:
        return await self._family.apply([await self._applied(one) for one in work])

    async def _sealed_operation(self, operation: NewOperation) -> NewOperation:
        if not operation.options.encryption_enabled:
            return operation
        await self._vault.prepare(operation.queue_id)
        payload = self._vault.seal_data(operation.queue_id, operation.payload, _context(operation.partition))
        return msgspec.structs.replace(operation, payload=BLOB + payload)

    async def _opened(self, operation: Operation) -> Operation:
        if not operation.payload.startswith(BLOB):
            return operation
        record = operation.payload.removeprefix(BLOB)
        await self._vault.know([record[1:17]])
        payload = self._vault.open_data(record, _context(operation.partition))
        return msgspec.structs.replace(operation, payload=payload)

    async def _applied(self, work: Application) -> Application:
        if work.slice is not None and work.slice.options.encryption_enabled:
            [part] = await self._sealed([work.slice])
            return msgspec.structs.replace(work, slice=part)
        if work.ack is not None and work.ack.results:
            [ack] = await self._noted([work.ack])
            return msgspec.structs.replace(work, ack=ack)
        return work


def _context(partition: PartitionId) -> bytes:
    return b"operation of %d-%d" % partition
