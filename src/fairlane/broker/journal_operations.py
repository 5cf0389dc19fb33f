"""Operations in the journal: found by their id like those in the store, and recorded there once applied."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, cast
from uuid import UUID

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.failed_operations import FailedOperations
from fairlane.errors import FairlaneError
from fairlane.model.ids import PartitionId
from fairlane.model.operation import PRIORITIES, Operation, OperationType, ack_result, push_result
from fairlane.model.outcome import AckOutcome, PushOutcome
from fairlane.store.contract.journal import Entry
from fairlane.store.contract.operations import AppliedOperation
from fairlane.store.contract.store import Store

_UNRECORDED_MAX: Final = 10_000
_NOWHERE: Final = PartitionId(0, 0)
_TYPES: Final[dict[str, OperationType]] = {"push": "PUSH", "ack": "ACK_BATCH"}

log = logging.getLogger(__name__)

Applied = tuple[Entry, Sequence[PushOutcome] | Sequence[AckOutcome]]


class JournalOperations:
    def __init__(self, failed: FailedOperations, store: Store, catalogue: Catalogue) -> None:
        self._failed = failed
        self._journal = failed.journal
        self._store = store
        self._catalogue = catalogue
        self._unrecorded: deque[AppliedOperation] = deque(maxlen=_UNRECORDED_MAX)
        """Applied, but the store fell silent before they could be recorded."""

    async def find(self, tenant: str, id: UUID) -> Operation | None:
        entry = await self._journal.find(id)
        return self._operation(entry) if entry is not None and entry.backlog.tenant == tenant else None

    async def page(self, after: UUID, *, failed: bool | None, limit: int) -> list[Operation]:
        """Of all tenants, by id; those that failed, those that are pending, or both."""
        return [self._operation(entry) for entry in await self._journal.page(after, failed=failed, limit=limit)]

    async def retry(self, id: UUID) -> None:
        """Let one that failed wait again, at the end of its backlog. NotFound if it is not there."""
        await self._failed.retry(await self._failed.named(id))

    async def discard(self, id: UUID) -> None:
        """Give up one that failed, for good. NotFound if it is not there."""
        await self._failed.discard(await self._failed.named(id))

    async def record(self, applied: Sequence[Applied]) -> None:
        """Let the store know what became of entries. Called before they leave the journal, so that a broker that dies
        in between records them again, and their id is found throughout. What became an operation of the store is known
        there under the same id."""
        self._unrecorded += [
            self._applied(entry, outcomes)
            for entry, outcomes in applied
            if entry.id is not None and str(entry.id) not in [one.operation_id for one in outcomes]
        ]
        if not self._unrecorded:
            return
        try:
            await self._store.operations.record(list(self._unrecorded))
        except FairlaneError as error:
            # They are stored all the same; whoever asks for them is told that there is no such operation, for now.
            log.warning("cannot record %d applied operations of the journal: %s", len(self._unrecorded), error)
            return
        self._unrecorded.clear()

    def _applied(self, entry: Entry, outcomes: Sequence[Any]) -> AppliedOperation:
        where, names = self._where(entry)
        if entry.backlog.kind == "push":
            where = next((one.partition for one in outcomes if one.partition), _NOWHERE)
        result = push_result(outcomes) if entry.backlog.kind == "push" else ack_result(outcomes)
        return AppliedOperation(
            id=cast(UUID, entry.id),
            partition=where,
            messages=entry.messages,
            created_at=entry.created_at,
            result=result,
            **names,
        )

    def _where(self, entry: Entry) -> tuple[PartitionId, dict[str, Any]]:
        """The partition of an entry as far as it is known, and its names."""
        kind, tenant, name, partition = entry.backlog
        names = {"type": _TYPES[kind], "tenant": tenant, "queue": name, "partition_name": partition, "group": ""}
        if kind == "push":
            return _NOWHERE, names
        where = PartitionId.parse(partition)
        queue, label = self._catalogue.known_names(where)
        return where, names | {"queue": queue or "", "partition_name": label or partition, "group": name}

    def _operation(self, entry: Entry) -> Operation:
        where, names = self._where(entry)
        return Operation(
            id=cast(UUID, entry.id),
            status="pending" if entry.error is None else "failed",
            priority=PRIORITIES[names["type"]],
            partition=where,
            queue_id=0,
            group_id=0,
            sequence=entry.seq,
            payload=b"",
            size=len(entry.body),
            messages=entry.messages,
            created_at=entry.created_at,
            started_at=None,
            processed_at=None,
            worker=None,
            retries=0,
            error=entry.error,
            failed_at=None,
            result=None,
            durability="journal",
            **names,
        )
