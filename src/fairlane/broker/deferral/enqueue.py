"""Enqueue: turns pushes and acks into operations, one for each lane of each request."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from uuid import UUID

from fairlane.broker.ack import AckRequest
from fairlane.broker.ack_plan import LOCKED, LOST, UNRESOLVABLE, lanes_of
from fairlane.broker.capacity import QueueCapacity
from fairlane.broker.catalogue import Catalogue, Refused
from fairlane.broker.deferral.open_operations import OpenOperations
from fairlane.broker.push_batch import PartitionBatch, PushFlight
from fairlane.errors import FairlaneError, LaneLocked, NotFound, OutcomeUnknown, as_outcome_unknown
from fairlane.model.ids import PartitionId, Uuid7
from fairlane.model.operation import ack_payload, ack_type, push_payload
from fairlane.model.outcome import AckOutcome, OperationReason, Outcomes, PushOutcome
from fairlane.model.queue import QueueOptions
from fairlane.runtime.backoff import UNKNOWN_OUTCOME_PAUSES
from fairlane.store.contract.journal import Entry
from fairlane.store.contract.operations import Enqueued, EnqueueResult, NewOperation
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Full, PartitionLocked


class Enqueuer:
    def __init__(
        self, store: Store, catalogue: Catalogue, open_operations: OpenOperations, capacity: QueueCapacity
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._open_operations = open_operations
        self._capacity = capacity
        self._ids = Uuid7(store.id_time)

    async def push(
        self, flight: PushFlight, batches: Sequence[PartitionBatch], reason: OperationReason
    ) -> list[PartitionBatch]:
        """Enqueue the messages of these batches and answer them. Returns the batches whose queue has changed."""
        limits = flight.limits if reason == "maintaining_order" else None
        refusal = limits.refusal("push") if limits is not None else None
        if refusal is not None:
            for batch in batches:
                flight.answer(batch, (0, len(batch.owners)), PushOutcome("refused", "", error=refusal))
            return []
        parts = [(batch, part) for batch in batches for part in batch.operation_ranges()]
        results = await self._enqueue([self._push_operation(batch, *part) for batch, part in parts])
        moved: dict[int, PartitionBatch] = {}
        # From the end, so that the positions of the others in their batch stay valid.
        for (batch, part), (new, result) in reversed(list(zip(parts, results, strict=True))):
            if isinstance(result, Enqueued | Full):
                flight.answer(batch, part, self._outcome(new, result, reason))
            elif isinstance(result, PartitionLocked):
                flight.locked[batch.partition] = batch
            else:
                moved[id(batch)] = batch
        for partition in flight.locked:
            flight.batches.pop(partition, None)
        return list(moved.values())

    def _push_operation(self, batch: PartitionBatch, start: int, end: int) -> NewOperation:
        part = batch.slice
        tenant, queue, partition = batch.partition
        minted = zip(part.given[start:end], part.transaction_ids[start:end], batch.message_ids[start:end], strict=True)
        doubt = any(given and transaction_id == message_id for given, transaction_id, message_id in minted)
        return NewOperation(
            id=UUID(self._ids()),
            type="PUSH",
            partition=part.partition,
            queue_id=part.queue_id,
            options=part.options,
            tenant=tenant,
            queue=queue,
            partition_name=partition,
            messages=end - start,
            payload=push_payload(part.fragments[start:end], doubt=doubt),
        )

    def _outcome(self, new: NewOperation, result: Enqueued | Full, reason: OperationReason) -> PushOutcome:
        outcome = PushOutcome("buffered", "", depth=result.depth, capacity=result.capacity)
        if isinstance(result, Full):
            outcome.status, outcome.error = "refused", self._capacity.refusal(new.queue_id, result, new.messages)
            return outcome
        if result.depth is not None:
            self._capacity.observe(new.queue_id, result.depth, new.messages)
        outcome.partition, outcome.operation_id, outcome.durability = new.partition, str(new.id), "store"
        outcome.queue_position, outcome.reason = result.position, reason
        outcome.estimated_wait = self._open_operations.estimate(result.position)
        return outcome

    async def acks(
        self, requests: Sequence[AckRequest], reason: OperationReason = "system_busy"
    ) -> list[Sequence[AckOutcome] | Exception]:
        """Turn acks into operations, one per lane and lease of each request. Answers acks of unknown lanes at once."""
        outcomes = [Outcomes(request.items) for request in requests]
        operations: list[NewOperation] = []
        owners: list[tuple[int, Sequence[int]]] = []
        for number, request in enumerate(requests):
            for (partition, lease), indexes in lanes_of(request.items).items():
                payload = ack_payload(request.group, [request.items[index] for index in indexes])
                new = await self._ack_operation(
                    request.tenant, request.group, partition, payload, len(indexes), UUID(self._ids())
                )
                if new is None:
                    outcomes[number].add(indexes, UNRESOLVABLE if lease is None else LOST)
                else:
                    operations.append(new)
                    owners.append((number, indexes))
        locked: set[int] = set()
        enqueued: set[int] = set()
        for (number, indexes), (new, result) in zip(owners, await self._enqueue(operations), strict=True):
            if isinstance(result, PartitionLocked):
                locked.add(number)
                continue
            if not isinstance(result, Enqueued):
                outcomes[number].add(indexes, UNRESOLVABLE)
                continue
            outcome = AckOutcome(True, "", operation_id=str(new.id), durability="store", reason=reason)
            outcome.queue_position, outcome.estimated_wait = (
                result.position,
                self._open_operations.estimate(result.position),
            )
            outcomes[number].add(indexes, outcome)
            enqueued.add(number)
        answers: list[Sequence[AckOutcome] | Exception] = list(outcomes)
        for number in locked:
            error = LaneLocked(LOCKED)
            answers[number] = as_outcome_unknown(error) if number in enqueued else error
        return answers

    async def _ack_operation(
        self, tenant: str, group: str, partition: PartitionId, payload: bytes, acks: int, id: UUID
    ) -> NewOperation | None:
        """Return an operation for the acks of one lane, or None if the lane does not exist."""
        catalogue = self._catalogue
        found = await catalogue.partition(tenant, partition)
        group_id = await catalogue.group_id(found.queue_id, group) if found else None
        if found is None or group_id is None:
            return None
        queue, _ = await catalogue.names(tenant, partition)
        known = await catalogue.queue(tenant, queue, make=False) if queue else None
        return NewOperation(
            id=id,
            type=ack_type(acks),
            partition=partition,
            queue_id=found.queue_id,
            options=known.options if known else QueueOptions(),
            tenant=tenant,
            queue=queue or "",
            partition_name=found.name,
            group=group,
            group_id=group_id,
            payload=payload,
        )

    async def move(self, entries: Sequence[Entry]) -> list[tuple[Entry, FairlaneError | None]]:
        """Turn journal entries into operations, under their ids. Repeating it is safe.

        Returns the entries that were tried, in order, each with its error, or None if it is an operation now.
        """
        refused: Refused = {}
        wanted: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        for kind, tenant, name, partition in (entry.backlog for entry in entries):
            if kind == "push":
                wanted[tenant, name][partition] = None
        found = await self._catalogue.find(wanted, refused)
        operations: list[NewOperation] = []
        tried: list[tuple[Entry, FairlaneError | None]] = []
        ids: set[UUID] = set()
        for entry in entries:
            kind, tenant, name, partition = entry.backlog
            if entry.id in ids:  # adopted twice
                continue
            ids.add(entry.id)
            if kind == "ack":
                lane = PartitionId.parse(partition)
                new = await self._ack_operation(tenant, name, lane, entry.body, entry.messages, entry.id)
                error: FairlaneError | None = NotFound(f"group {name!r} or the partition that it read was deleted")
            elif (error := refused.get((tenant, name, partition))) is not None:
                new = None
            else:
                queue, partitions = found[tenant, name]
                new = NewOperation(
                    id=entry.id,
                    type="PUSH",
                    partition=partitions[partition].id,
                    queue_id=queue.id,
                    options=queue.options,
                    tenant=tenant,
                    queue=name,
                    partition_name=partition,
                    messages=entry.messages,
                    payload=entry.body,
                )
            if new is None:
                tried.append((entry, error))
                continue
            new.created_at = entry.created_at
            operations.append(new)
            tried.append((entry, None))
        results = iter(await self._enqueue(operations, pauses=()))
        return [(entry, error or self._error_of(*next(results))) for entry, error in tried]

    def _error_of(self, new: NewOperation, result: EnqueueResult) -> FairlaneError | None:
        if isinstance(result, Enqueued):
            return None
        if isinstance(result, Full):
            return self._capacity.refusal(new.queue_id, result, new.messages)
        if isinstance(result, PartitionLocked):
            return LaneLocked(LOCKED)
        self._catalogue.forget(new.queue_id)
        return LaneLocked(f"queue {new.queue!r} is being changed; the operation is retried")

    async def _enqueue(
        self, operations: list[NewOperation], pauses: Iterable[float] = UNKNOWN_OUTCOME_PAUSES
    ) -> list[tuple[NewOperation, EnqueueResult]]:
        """Enqueue operations, and return each with its result.

        A commit with an unknown outcome is retried after each of the `pauses`, under the same ids.
        """
        if not operations:
            return []
        pauses = iter(pauses)
        unknown = False
        while True:
            try:
                results = await self._store.operations.enqueue(operations)
                self._open_operations.enqueued(sum(isinstance(result, Enqueued) for result in results))
                return list(zip(operations, results, strict=True))
            except OutcomeUnknown:
                unknown = True
                if (pause := next(pauses, None)) is None:
                    raise
                await asyncio.sleep(pause)
            except FairlaneError as error:
                if not unknown:
                    raise
                raise as_outcome_unknown(error) from error
