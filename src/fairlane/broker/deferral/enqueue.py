"""Operations out of pushes and acks: one for what one request brings to one lane."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from fairlane.broker.ack import AckRequest
from fairlane.broker.ack_plan import LOCKED, LOST, UNRESOLVABLE, lanes_of
from fairlane.broker.capacity import Capacity
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.drain import OperationDrain
from fairlane.broker.push_batch import Draft, Flush
from fairlane.broker.unknown import UNKNOWN_PAUSES, still_unknown
from fairlane.errors import FairlaneError, LaneLocked, OutcomeUnknown
from fairlane.model.ids import PartitionId, Uuid7
from fairlane.model.operation import ack_payload, push_payload
from fairlane.model.outcome import AckOutcome, OperationReason, Outcomes, PushOutcome
from fairlane.model.queue import QueueOptions
from fairlane.store.contract.operations import Enqueued, EnqueueResult, NewOperation
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Full, Locked

if TYPE_CHECKING:
    from fairlane.broker.admission import Admission


class Enqueuer:
    def __init__(self, store: Store, catalogue: Catalogue, drain: OperationDrain, capacity: Capacity) -> None:
        self._store = store
        self._catalogue = catalogue
        self._drain = drain
        self._capacity = capacity
        self.admission: Admission | None = None
        """Says why no more pushes are enqueued after others now, if so."""
        self._ids = Uuid7(store.id_time)

    async def push(self, flush: Flush, drafts: Sequence[Draft], reason: OperationReason) -> list[Draft]:
        """Enqueue what these drafts hold and answer it; those drafts that are not what they were are given back."""
        # What the journal brings, in order, was accepted long ago.
        follows = reason == "maintaining_order" and not flush.in_order
        refusal = self.admission.refusal("push") if follows and self.admission is not None else None
        if refusal is not None:
            for draft in drafts:
                for index in reversed(range(len(draft.owners))):
                    outcome = PushOutcome("refused", draft.slice.transaction_ids[index], error=refusal)
                    flush.settle(draft, draft.drop(index), outcome)
            return []
        parts = [(draft, start, end) for draft in drafts for start, end in _requests(draft)]
        results = await self._enqueue([self._operation(flush, *part) for part in parts])
        moved: dict[int, Draft] = {}
        # From the end, so that dropping some leaves the others of their draft in their places.
        for (draft, start, end), (new, result) in reversed(list(zip(parts, results, strict=True))):
            if isinstance(result, Enqueued | Full):
                self._answer(flush, draft, range(start, end), new, result, reason)
            elif isinstance(result, Locked):
                flush.locked[draft.partition] = draft
            else:
                moved[id(draft)] = draft
        for partition in flush.locked:
            flush.drafts.pop(partition, None)
        return list(moved.values())

    def _operation(self, flush: Flush, draft: Draft, start: int, end: int) -> NewOperation:
        part = draft.slice
        tenant, queue, partition = draft.partition
        minted = zip(part.given[start:end], part.transaction_ids[start:end], draft.message_ids[start:end], strict=True)
        doubt = any(given and transaction_id == message_id for given, transaction_id, message_id in minted)
        return NewOperation(
            id=flush.requests[draft.owners[start][0]].operation_id or UUID(self._ids()),
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

    async def _ack_operation(
        self, request: AckRequest, partition: PartitionId, indexes: Sequence[int]
    ) -> NewOperation | None:
        """What these items say of one lane; None if there is no such lane."""
        catalogue = self._catalogue
        found = await catalogue.partition(partition)
        group_id = await catalogue.group_id(found.queue_id, request.group) if found else None
        if found is None or group_id is None:
            return None
        queue, _ = await catalogue.names(partition)
        known = await catalogue.queue(request.tenant, queue, make=False) if queue else None
        return NewOperation(
            id=request.operation_id or UUID(self._ids()),
            type="ACK_BATCH",
            partition=partition,
            queue_id=found.queue_id,
            options=known.options if known else QueueOptions(),
            tenant=request.tenant,
            queue=queue or "",
            partition_name=found.name,
            group=request.group,
            group_id=group_id,
            payload=ack_payload(request.group, [request.items[index] for index in indexes]),
        )

    async def _enqueue(self, operations: list[NewOperation]) -> list[tuple[NewOperation, EnqueueResult]]:
        """Each with what became of it. A commit whose fate is not known is repeated, under the same ids."""
        if not operations:
            return []
        pauses = iter(UNKNOWN_PAUSES)
        unknown = False
        while True:
            try:
                results = await self._store.operations.enqueue(operations)
                self._drain.enqueued(sum(isinstance(result, Enqueued) for result in results))
                return list(zip(operations, results, strict=True))
            except OutcomeUnknown:
                unknown = True
                if (pause := next(pauses, None)) is None:
                    raise
                await asyncio.sleep(pause)
            except FairlaneError as error:
                if not unknown:
                    raise
                raise still_unknown(error) from error

    def _answer(
        self,
        flush: Flush,
        draft: Draft,
        where: range,
        new: NewOperation,
        result: Enqueued | Full,
        reason: OperationReason,
    ) -> None:
        outcome = PushOutcome("buffered", "", depth=result.depth, capacity=result.capacity)
        if isinstance(result, Enqueued):
            if result.depth is not None:
                self._capacity.saw(new.queue_id, result.depth, new.messages)
            outcome.partition, outcome.operation_id, outcome.durability = new.partition, str(new.id), "store"
            outcome.queue_position, outcome.reason = result.position, reason
            outcome.estimated_wait = self._drain.estimate(result.position)
        else:
            outcome.status, outcome.error = "refused", self._capacity.refusal(new.queue_id, result, new.messages)
        for index in reversed(where):
            transaction_id = draft.slice.transaction_ids[index]
            answer = msgspec.structs.replace(outcome, transaction_id=transaction_id)
            flush.settle(draft, draft.drop(index), answer)

    async def acks(
        self, requests: Sequence[AckRequest], reason: OperationReason = "system_busy"
    ) -> list[Sequence[AckOutcome] | Exception]:
        """Make acks operations, one for what a request says of a lane under one lease. What names no lane is answered
        at once."""
        outcomes = [Outcomes(request.items) for request in requests]
        operations: list[NewOperation] = []
        owners: list[tuple[int, Sequence[int]]] = []
        for number, request in enumerate(requests):
            for (partition, lease), indexes in lanes_of(request.items).items():
                new = await self._ack_operation(request, partition, indexes)
                if new is None:
                    outcomes[number].add(indexes, UNRESOLVABLE if lease is None else LOST)
                else:
                    operations.append(new)
                    owners.append((number, indexes))
        locked: set[int] = set()
        for (number, indexes), (new, result) in zip(owners, await self._enqueue(operations), strict=True):
            if isinstance(result, Locked):
                locked.add(number)
                continue
            if not isinstance(result, Enqueued):
                outcomes[number].add(indexes, UNRESOLVABLE)
                continue
            outcome = AckOutcome(True, "", operation_id=str(new.id), durability="store")
            outcome.queue_position, outcome.reason = result.position, reason
            outcome.estimated_wait = self._drain.estimate(result.position)
            outcomes[number].add(indexes, outcome)
        return [LaneLocked(LOCKED) if number in locked else one for number, one in enumerate(outcomes)]


def _requests(draft: Draft) -> list[tuple[int, int]]:
    """Where in the draft the messages of each request begin and end."""
    found, start = [], 0
    for _, owners in groupby(draft.owners, key=lambda owner: owner[0]):
        end = start + sum(1 for _ in owners)
        found.append((start, end))
        start = end
    return found
