"""Push: what many requests bring becomes one slice per partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from fairlane.broker.capacity import Capacity, make_room
from fairlane.broker.catalogue import Catalogue, Refused
from fairlane.broker.push_batch import Draft, Flush, PushRequest, by_partition, doubt, pack_items
from fairlane.broker.unknown import UNKNOWN_PAUSES, still_unknown
from fairlane.broker.waiters import NOT_MADE_YET, Waiters
from fairlane.errors import (
    BrokerFailed,
    FairlaneError,
    OutcomeUnknown,
    StoreUnavailable,
)
from fairlane.model.ids import Uuid7, id_key
from fairlane.model.outcome import OperationReason, PushOutcome
from fairlane.runtime.batcher import LateAnswer
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import (
    Duplicate,
    Duplicates,
    Full,
    Locked,
    OperationsAhead,
    PushResult,
    Slice,
    Stored,
)
from fairlane.telemetry import Telemetry

if TYPE_CHECKING:
    from fairlane.broker.deferral.enqueue import Enqueuer

_ROUNDS_MAX = 100
"""A flush goes round again after a refusal of the store: a duplicate, a full queue, a deleted one. Each round
settles some."""

LOCKED_SECONDS = 10.0
"""For how long a locked lane is waited for where there is no journal."""
_LOCKED_PAUSE_SECONDS = 0.1


class Announcer:
    """Wakes long polls, here and at other brokers, when there may be something for them."""

    def __init__(self, store: Store, waiters: Waiters, telemetry: Telemetry) -> None:
        self._store = store
        self._waiters = waiters
        self._telemetry = telemetry
        self._ready: dict[int, int] = {}

    def stored(self, queue_id: int, lanes: Sequence[Sequence[tuple[int, int]]]) -> None:
        """A flush filled these lanes; the messages of each are those of these (request, item)."""
        self._ready[queue_id] = self._ready.get(queue_id, 0) + len(lanes)
        counts = self._telemetry.queue(queue_id)
        for owners in lanes:
            counts.pushed += len(owners)
            counts.pushes += 1 if owners[0][0] == owners[-1][0] else len({request for request, _ in owners})

    def flushed(self) -> None:
        """Wake polls once for all lanes that a flush filled."""
        ready, self._ready = self._ready, {}
        waiters = self._waiters
        if NOT_MADE_YET in waiters.parked:
            waiters.wake(NOT_MADE_YET, len(waiters))
        for queue_id, lanes in ready.items():
            if queue_id in waiters.parked:
                waiters.wake(queue_id, lanes)
            if not self._store.alone:
                self._store.hint(queue_id)

    def appended(self, queue_id: int, count: int) -> None:
        """Messages came that nobody pushes now: they waited for their time, or as operations."""
        self._telemetry.queue(queue_id).pushed += count
        self.announce(queue_id, 1)

    def announce(self, queue_id: int, lanes: int) -> None:
        """Lanes of a queue became ready, however that came."""
        self._ready[queue_id] = self._ready.get(queue_id, 0) + lanes
        self.flushed()


class Pusher:
    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        announcer: Announcer,
        enqueuer: Enqueuer,
        capacity: Capacity,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._announcer = announcer
        self._enqueuer = enqueuer
        self._capacity = capacity
        self._ids = Uuid7(store.id_time)

    async def flush(self, requests: Sequence[PushRequest]) -> list[list[PushOutcome] | Exception | LateAnswer]:
        """A request that meets a locked lane is answered later, and no other waits for that."""
        flush = Flush(requests)
        await self.draft(flush)
        await self._store_all(flush)
        flush.tell_left_out()
        answers: list[list[PushOutcome] | Exception | LateAnswer] = list(flush.outcomes)
        if flush.locked:
            owners = [list(draft.everybody()) for draft in flush.locked.values()]
            decided = asyncio.ensure_future(self._wait_for_partitions(flush))
            for number in {number for some in owners for number, _ in some}:
                answers[number] = asyncio.ensure_future(_outcome(flush, number, decided))
        return answers

    async def _wait_for_partitions(self, flush: Flush) -> None:
        give_up_at = monotonic() + LOCKED_SECONDS
        while flush.locked and monotonic() < give_up_at:
            await asyncio.sleep(_LOCKED_PAUSE_SECONDS)
            flush.drafts, flush.locked = flush.locked, {}
            await self._store_all(flush)
        flush.fail_locked()
        flush.tell_left_out()

    async def run(self, flush: Flush) -> list[list[PushOutcome] | Exception]:
        """What meets a locked lane gets LaneLocked, without waiting for it long."""
        await self.draft(flush)
        await self._store_all(flush)
        if flush.locked:
            flush.fail_locked()
        if flush.left_out:
            flush.tell_left_out()
        return flush.outcomes

    async def _store_all(self, flush: Flush) -> None:
        """Until every draft is decided or found locked."""
        pauses = iter(UNKNOWN_PAUSES)
        for _ in range(_ROUNDS_MAX):
            drafts = list(flush.drafts.values())
            if not drafts or flush.abandoned:
                return
            doubtful, flush.doubtful = flush.doubtful, True
            try:
                results = await self._store.messages.push([draft.slice for draft in drafts])
                flush.doubtful = False
                await self.apply(flush, drafts, results)
            except OutcomeUnknown as error:
                flush.doubtful = True
                pause = next(pauses, None)
                if pause is None or not all(draft.slice.options.dedup_seconds for draft in drafts):
                    flush.fail(error)
                    return
                await asyncio.sleep(pause)
                doubt(drafts)
            except FairlaneError as error:
                flush.doubtful = doubtful and flush.doubtful
                parts = [part for draft in drafts for part in draft.by_request()]
                if isinstance(error, BrokerFailed) and len(parts) > 1:
                    await self._store_each(flush, parts)
                    return
                flush.fail(still_unknown(error) if flush.doubtful else error)
        flush.fail(StoreUnavailable("the store kept changing under this push; try again"))

    async def _store_each(self, flush: Flush, parts: Sequence[Draft]) -> None:
        """One by one, after a defect: whose messages it met fails alone."""
        for part in parts:
            flush.drafts = {part.partition: part}
            await self._store_all(flush)

    async def enqueue(self, requests: Sequence[PushRequest]) -> list[list[PushOutcome] | Exception]:
        return await self.run_enqueue(Flush(requests))

    async def run_enqueue(self, flush: Flush) -> list[list[PushOutcome] | Exception]:
        """Make operations of all of it."""
        await self.draft(flush)
        try:
            for _ in range(_ROUNDS_MAX):
                drafts = list(flush.drafts.values())
                if not drafts or flush.abandoned:
                    return flush.outcomes
                flush.doubtful = True
                await self._defer(flush, drafts, "system_busy")
                flush.doubtful = False
            flush.fail(StoreUnavailable("the store kept changing under this push; try again"))
        except FairlaneError as error:
            flush.fail(error)
        finally:
            flush.fail_locked()
        return flush.outcomes

    async def _defer(self, flush: Flush, drafts: Sequence[Draft], reason: OperationReason) -> None:
        if flush.abandoned:  # it is in the journal: as another operation it could be stored twice
            return
        for draft in await self._enqueuer.push(flush, drafts, reason):
            await self.move(draft)
        flush.drafts = {partition: draft for partition, draft in flush.drafts.items() if draft.owners}

    async def draft(self, flush: Flush) -> None:
        """Find or make every partition, then pack every message. A request that names what cannot be had, or too much
        that is new, fails alone."""
        accepted = list(enumerate(flush.requests))
        where = by_partition(flush.requests)
        found = self._catalogue.known(where)
        if found is None:
            refused: Refused = {}
            accepted = await self._too_many(flush, accepted)
            found = await self._catalogue.find(by_partition([request for _, request in accepted]), refused)
            accepted = [one for one in accepted if not _refuse(flush, *one, refused)] if refused else accepted
            where = by_partition([request for _, request in accepted])
        traced = bool([1 for request in flush.requests if request.traced])
        by_queue = {}
        for (tenant, name), (queue, partitions) in found.items():
            by_queue[tenant, name] = {
                label: Draft(
                    (tenant, name, label), Slice(partition.id, queue.id, queue.options, [], [], [], [], [], traced)
                )
                for label, partition in partitions.items()
            }
        for draft in pack_items(accepted, where, by_queue, self._ids.many):
            flush.drafts[draft.partition] = draft

    async def _too_many(self, flush: Flush, requests: list[tuple[int, PushRequest]]) -> list[tuple[int, PushRequest]]:
        """The requests but for those that name more than one may that is new."""
        accepted = []
        for number, request in requests:
            try:
                await self._catalogue.check_names(request.tenant, request.items)
                accepted.append((number, request))
            except FairlaneError as error:
                flush.outcomes[number] = error
        return accepted

    async def apply(self, flush: Flush, drafts: Sequence[Draft], results: Sequence[PushResult]) -> None:
        """Answer what is decided; what is left in `flush.drafts` goes to the store again."""
        others: list[tuple[Draft, PushResult]] = []
        depths: dict[int, tuple[int, int]] = {}
        stored: dict[int, list[list[tuple[int, int]]]] = {}
        outcomes = flush.outcomes
        for draft, result in zip(drafts, results, strict=True):
            if type(result) is not Stored:
                others.append((draft, result))
                continue
            part, position, depth, capacity = draft.slice, result.first, result.depth, result.capacity
            if depth is not None:
                depths[part.queue_id] = depth, depths.get(part.queue_id, (0, 0))[1] + len(draft.owners)
            ids = zip(draft.owners, part.transaction_ids, draft.message_ids, strict=True)
            for (request, index), transaction_id, message_id in ids:
                outcome = PushOutcome("queued", transaction_id, message_id, part.partition, position, depth, capacity)
                if draft.repeats:
                    flush.settle(draft, (request, index), outcome)
                elif type(answers := outcomes[request]) is list:
                    answers[index] = outcome
                position += 1
            del flush.drafts[draft.partition]
            stored.setdefault(part.queue_id, []).append(draft.owners)
        for queue_id, lanes in stored.items():
            self._announcer.stored(queue_id, lanes)
        for queue_id, (depth, came) in depths.items():
            self._capacity.saw(queue_id, depth, came)
        if others:
            await self._apply_others(flush, others)

    async def _apply_others(self, flush: Flush, others: Sequence[tuple[Draft, PushResult]]) -> None:
        """What was not stored."""
        full: dict[int, list[tuple[Draft, Full]]] = defaultdict(list)
        deferred: list[Draft] = []
        for draft, result in others:
            if isinstance(result, Duplicates):
                _duplicates(flush, draft, result)
            elif isinstance(result, Full):
                full[draft.slice.queue_id].append((draft, result))
            elif isinstance(result, OperationsAhead):
                if flush.is_patient(draft):
                    flush.leave_out(draft)
                else:
                    deferred.append(draft)
            elif isinstance(result, Locked):
                flush.put_off(draft)
            else:
                await self.move(draft)
        if deferred:
            await self._defer(flush, deferred, "maintaining_order")
        for refusals in full.values():
            make_room(flush, refusals, self._capacity)
        flush.drafts = {partition: draft for partition, draft in flush.drafts.items() if draft.owners}

    async def move(self, draft: Draft) -> None:
        """The queue was deleted or changed: look where its messages belong now."""
        part = draft.slice
        self._catalogue.forget(part.queue_id)
        tenant, name, label = draft.partition
        refused: Refused = {}
        queue, partitions = await self._catalogue.find_queue(tenant, name, [label], refused)
        if refused:
            raise refused[draft.partition]
        part.partition, part.queue_id, part.options = partitions[label].id, queue.id, queue.options


async def _outcome(flush: Flush, number: int, decided: Awaitable[None]) -> list[PushOutcome]:
    """What became of a request, once that is decided."""
    await decided
    outcome = flush.outcomes[number]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _refuse(flush: Flush, number: int, request: PushRequest, refused: Refused) -> bool:
    """Whether a request names what cannot be had; it is answered so."""
    errors = (refused.get((request.tenant, item.queue, item.partition)) for item in request.items)
    error = next(filter(None, errors), None)
    if error is not None:
        flush.outcomes[number] = error
    return error is not None


def _duplicates(flush: Flush, draft: Draft, result: Duplicates) -> None:
    """Answer and drop the messages that are stored already; a message whose key is another's gets its next key."""
    part = draft.slice
    by_index: dict[int, list[Duplicate]] = defaultdict(list)
    for one in result.found:
        by_index[one.index].append(one)
    for index in sorted(by_index, reverse=True):  # from the end, so that dropping one leaves the others in their places
        transaction_id = part.transaction_ids[index]
        found = next((one for one in by_index[index] if one.transaction_id == transaction_id), None)
        if found is None:
            part.keys[index] = id_key(transaction_id, salt=1)
            continue
        # Our own message of an earlier try was queued by us, whatever became of the answer.
        mine = draft.message_ids[index] == found.message_id
        outcome = PushOutcome(
            status="queued" if mine else "duplicate",
            transaction_id=transaction_id,
            message_id=found.message_id,
            partition=found.partition or part.partition,
            position=found.position,
        )
        flush.settle(draft, draft.drop(index), outcome)
