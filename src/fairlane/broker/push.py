"""Push: merges many requests into one slice per partition and stores them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlane.broker.capacity import QueueCapacity, fit_to_capacity
from fairlane.broker.catalogue import Catalogue, Refused
from fairlane.broker.push_batch import PartitionBatch, PushFlight, PushRequest, by_partition, pack_items, recheck_ids
from fairlane.broker.waiters import NOT_MADE_YET, Waiters
from fairlane.errors import (
    BrokerFailed,
    FairlaneError,
    OutcomeUnknown,
    StoreUnavailable,
    as_outcome_unknown,
)
from fairlane.model.ids import Uuid7, id_key
from fairlane.model.outcome import OperationReason, PushOutcome
from fairlane.runtime.backoff import UNKNOWN_OUTCOME_PAUSES, LockRetries
from fairlane.runtime.batcher import LateAnswer, decided_answer
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import (
    Duplicate,
    Duplicates,
    Full,
    OperationsAhead,
    PartitionLocked,
    PushResult,
    Slice,
    Stored,
)
from fairlane.telemetry import Telemetry

if TYPE_CHECKING:
    from fairlane.broker.deferral.enqueue import Enqueuer

_ROUNDS_MAX = 100
"""Upper bound on rounds of one flight.

A refusal by the store (duplicate, full queue, deleted queue) costs another round, and each round settles some messages.
"""


class Announcer:
    """Wakes long polls, here and at other brokers, when lanes get messages."""

    def __init__(self, store: Store, waiters: Waiters, telemetry: Telemetry) -> None:
        self._store = store
        self._waiters = waiters
        self._telemetry = telemetry
        self._ready: dict[int, int] = {}

    def stored(self, queue_id: int, lanes: Sequence[Sequence[tuple[int, int]]]) -> None:
        """Note lanes that a flight filled. Each lane is given as the (request, item) owners of its messages."""
        self._ready[queue_id] = self._ready.get(queue_id, 0) + len(lanes)
        counts = self._telemetry.queue(queue_id)
        for owners in lanes:
            counts.pushed += len(owners)
            counts.pushes += 1 if owners[0][0] == owners[-1][0] else len({request for request, _ in owners})

    def wake_polls(self) -> None:
        """Wake polls once for all lanes that were filled since the last call."""
        ready, self._ready = self._ready, {}
        waiters = self._waiters
        if NOT_MADE_YET in waiters.parked:
            waiters.wake(NOT_MADE_YET, len(waiters))
        for queue_id, lanes in ready.items():
            if queue_id in waiters.parked:
                waiters.wake(queue_id, lanes)
            if not self._store.sole_broker:
                self._store.hint(queue_id)

    def appended(self, queue_id: int, count: int, *, lanes: int = 1) -> None:
        """Count and announce messages that came earlier and are stored now: scheduled or staged ones, or operations."""
        self._telemetry.queue(queue_id).pushed += count
        self.announce(queue_id, lanes)

    def announce(self, queue_id: int, lanes: int) -> None:
        """Announce lanes of a queue that became ready for any reason."""
        self._ready[queue_id] = self._ready.get(queue_id, 0) + lanes
        self.wake_polls()


class Pusher:
    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        announcer: Announcer,
        enqueuer: Enqueuer,
        capacity: QueueCapacity,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._announcer = announcer
        self._enqueuer = enqueuer
        self._capacity = capacity
        self._ids = Uuid7(store.id_time)

    async def flush_or_wait(self, flight: PushFlight) -> list[list[PushOutcome] | Exception | LateAnswer]:
        """Store the requests. A request with a locked lane is answered later, and the others do not wait for it."""
        await self.pack(flight)
        await self._store_all(flight)
        flight.report_blocked()
        answers: list[list[PushOutcome] | Exception | LateAnswer] = list(flight.outcomes)
        if flight.locked:
            owners = [list(batch.all_owners()) for batch in flight.locked.values()]
            decided = asyncio.ensure_future(self._wait_for_partitions(flight))
            for number in {number for some in owners for number, _ in some}:
                answers[number] = asyncio.ensure_future(decided_answer(flight.outcomes, number, decided))
        return answers

    async def _wait_for_partitions(self, flight: PushFlight) -> None:
        retries = LockRetries()
        while flight.locked and await retries.pause():
            flight.batches, flight.locked = flight.locked, {}
            await self._store_all(flight)
        flight.fail_locked()
        flight.report_blocked()

    async def run(self, flight: PushFlight) -> list[list[PushOutcome] | Exception]:
        """Store a flight. Requests with a locked lane fail with LaneLocked after a short wait."""
        await self.pack(flight)
        await self._store_all(flight)
        if flight.locked:
            flight.fail_locked()
        if flight.blocked:
            flight.report_blocked()
        return flight.outcomes

    async def _store_all(self, flight: PushFlight) -> None:
        """Store batches until each is decided or found locked."""
        pauses = iter(UNKNOWN_OUTCOME_PAUSES)
        for _ in range(_ROUNDS_MAX):
            batches = flight.undecided_batches()
            if not batches or flight.abandoned:
                return
            maybe_applied, flight.maybe_applied = flight.maybe_applied, True
            try:
                results = await self._store.messages.push([batch.slice for batch in batches])
                flight.maybe_applied = False
                await self.apply(flight, batches, results)
            except OutcomeUnknown as error:
                flight.maybe_applied = True
                pause = next(pauses, None)
                if pause is None or not all(batch.slice.options.dedup_seconds for batch in batches):
                    flight.fail(error)
                    return
                await asyncio.sleep(pause)
                recheck_ids(batches)
            except FairlaneError as error:
                flight.maybe_applied = maybe_applied and flight.maybe_applied
                parts = [part for batch in batches for part in batch.by_request()]
                if isinstance(error, BrokerFailed) and len(parts) > 1:
                    await self._store_each(flight, parts)
                    return
                flight.fail(as_outcome_unknown(error) if flight.maybe_applied else error)
        flight.fail(StoreUnavailable("the queue kept changing during this push; try again"))

    async def _store_each(self, flight: PushFlight, parts: Sequence[PartitionBatch]) -> None:
        """Store parts one by one after a defect, so that only the messages that cause it fail."""
        for part in parts:
            flight.batches = {part.partition: part}
            await self._store_all(flight)

    async def run_enqueue(self, flight: PushFlight) -> list[list[PushOutcome] | Exception]:
        """Make operations of the whole flight."""
        await self.pack(flight)
        try:
            for _ in range(_ROUNDS_MAX):
                batches = flight.undecided_batches()
                if not batches or flight.abandoned:
                    return flight.outcomes
                await self._defer(flight, batches, "system_busy")
            flight.fail(StoreUnavailable("the queue kept changing during this push; try again"))
        except FairlaneError as error:
            flight.fail(error)
        finally:
            flight.fail_locked()
        return flight.outcomes

    async def _defer(self, flight: PushFlight, batches: Sequence[PartitionBatch], reason: OperationReason) -> None:
        if flight.abandoned:  # it is in the journal: as another operation it could be stored twice
            return
        flight.maybe_applied = True
        moved = await self._enqueuer.push(flight, batches, reason)
        flight.maybe_applied = False
        for batch in moved:
            await self.move(batch)

    async def pack(self, flight: PushFlight) -> None:
        """Find or create every partition, then pack every message.

        A request that names what cannot be created, or too many new names, fails alone.
        """
        accepted = list(enumerate(flight.requests))
        where = by_partition(flight.requests)
        found = self._catalogue.known(where)
        if found is None:
            refused: Refused = {}
            accepted = await self._within_limits(flight, accepted)
            found = await self._catalogue.find(by_partition([request for _, request in accepted]), refused)
            accepted = [one for one in accepted if not _refuse(flight, *one, refused)] if refused else accepted
            where = by_partition([request for _, request in accepted])
        traced = bool([1 for request in flight.requests if request.traced])
        by_queue = {}
        for (tenant, name), (queue, partitions) in found.items():
            by_queue[tenant, name] = {
                label: PartitionBatch(
                    (tenant, name, label), Slice(partition.id, queue.id, queue.options, [], [], [], [], [], traced)
                )
                for label, partition in partitions.items()
            }
        for batch in pack_items(accepted, where, by_queue, self._ids.many):
            flight.batches[batch.partition] = batch

    async def _within_limits(
        self, flight: PushFlight, requests: list[tuple[int, PushRequest]]
    ) -> list[tuple[int, PushRequest]]:
        """Return the requests, except those that name too many new queues or partitions."""
        accepted = []
        for number, request in requests:
            try:
                await self._catalogue.check_names(request.tenant, request.items)
                accepted.append((number, request))
            except FairlaneError as error:
                flight.outcomes[number] = error
        return accepted

    async def apply(self, flight: PushFlight, batches: Sequence[PartitionBatch], results: Sequence[PushResult]) -> None:
        """Apply results. Undecided batches stay in `flight.batches` for another round."""
        others: list[tuple[PartitionBatch, PushResult]] = []
        depths: dict[int, tuple[int, int]] = {}
        stored: dict[int, list[list[tuple[int, int]]]] = {}
        outcomes = flight.outcomes
        for batch, result in zip(batches, results, strict=True):
            if type(result) is not Stored:
                others.append((batch, result))
                continue
            part, position, depth, capacity = batch.slice, result.first, result.depth, result.capacity
            if depth is not None:
                depths[part.queue_id] = depth, depths.get(part.queue_id, (0, 0))[1] + len(batch.owners)
            ids = zip(batch.owners, part.transaction_ids, batch.message_ids, strict=True)
            for (request, index), transaction_id, message_id in ids:
                outcome = PushOutcome("queued", transaction_id, message_id, part.partition, position, depth, capacity)
                if batch.repeats:
                    flight.settle(batch, (request, index), outcome)
                elif type(answers := outcomes[request]) is list:
                    answers[index] = outcome
                position += 1
            del flight.batches[batch.partition]
            stored.setdefault(part.queue_id, []).append(batch.owners)
        for queue_id, lanes in stored.items():
            self._announcer.stored(queue_id, lanes)
        for queue_id, (depth, came) in depths.items():
            self._capacity.observe(queue_id, depth, came)
        if others:
            await self._apply_others(flight, others)

    async def _apply_others(self, flight: PushFlight, others: Sequence[tuple[PartitionBatch, PushResult]]) -> None:
        """Handle every result except `Stored`."""
        full: dict[int, list[tuple[PartitionBatch, Full]]] = defaultdict(list)
        deferred: list[PartitionBatch] = []
        for batch, result in others:
            if isinstance(result, Duplicates):
                settle_duplicates(flight, batch, result)
            elif isinstance(result, Full):
                full[batch.slice.queue_id].append((batch, result))
            elif isinstance(result, OperationsAhead):
                if flight.can_wait(batch):
                    flight.mark_blocked(batch)
                else:
                    deferred.append(batch)
            elif isinstance(result, PartitionLocked):
                flight.mark_locked(batch)
            else:
                await self.move(batch)
        if deferred:
            await self._defer(flight, deferred, "maintaining_order")
        for refusals in full.values():
            fit_to_capacity(flight, refusals, self._capacity)

    async def move(self, batch: PartitionBatch) -> None:
        """Look up where the messages of a batch belong, after their queue was deleted or changed."""
        part = batch.slice
        self._catalogue.forget(part.queue_id)
        tenant, name, label = batch.partition
        refused: Refused = {}
        queue, partitions = await self._catalogue.find_queue(tenant, name, [label], refused)
        if refused:
            raise refused[batch.partition]
        part.partition, part.queue_id, part.options = partitions[label].id, queue.id, queue.options


def _refuse(flight: PushFlight, number: int, request: PushRequest, refused: Refused) -> bool:
    """Answer a request that names something that cannot be created. Returns False if it names nothing of the kind."""
    errors = (refused.get((request.tenant, item.queue, item.partition)) for item in request.items)
    error = next(filter(None, errors), None)
    if error is not None:
        flight.outcomes[number] = error
    return error is not None


def settle_duplicates(flight: PushFlight, batch: PartitionBatch, result: Duplicates) -> None:
    """Answer and remove stored messages.

    A message whose key belongs to another id gets its next key.
    """
    part = batch.slice
    by_index: dict[int, list[Duplicate]] = defaultdict(list)
    for one in result.found:
        by_index[one.index].append(one)
    for index in sorted(by_index, reverse=True):  # from the end, so that the positions of the others stay valid
        transaction_id = part.transaction_ids[index]
        found = next((one for one in by_index[index] if one.transaction_id == transaction_id), None)
        if found is None:
            part.keys[index] = id_key(transaction_id, salt=1)
            continue
        # Our own message of an earlier attempt counts as queued, even if its answer was lost.
        mine = batch.message_ids[index] == found.message_id
        outcome = PushOutcome(
            status="queued" if mine else "duplicate",
            transaction_id=transaction_id,
            message_id=found.message_id,
            partition=found.partition or part.partition,
            position=found.position,
        )
        flight.settle(batch, batch.drop(index), outcome)
