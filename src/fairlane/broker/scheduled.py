"""Scheduled messages: stored until they are due, cancelled and rescheduled by their transactionId."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta

from fairlane.broker.push import Pusher
from fairlane.broker.push_batch import PartitionBatch, PushFlight, PushRequest, recheck_ids
from fairlane.broker.resource import Resource
from fairlane.errors import (
    BrokerFailed,
    FairlaneError,
    InvalidRequest,
    LaneLocked,
    OutcomeUnknown,
    StoreUnavailable,
    as_outcome_unknown,
)
from fairlane.model.ids import PartitionId, id_key
from fairlane.model.limits import COUNT_MAX
from fairlane.model.message import PushItem
from fairlane.model.moment import Moment, When, moment_or_none
from fairlane.model.names import DEFAULT_PARTITION, check_count, check_name
from fairlane.model.outcome import PushOutcome
from fairlane.runtime.backoff import UNKNOWN_OUTCOME_PAUSES
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import NOT_DUE, Added, Duplicate, Duplicates, PushResult, ScheduledSlice
from fairlane.wire.scheduled import ScheduledPage

_ROUNDS_MAX = 100
_PAGE = re.compile(r"(\d{1,16})\.([0-9a-f-]{36})", re.ASCII)


class Scheduler:
    """Stores messages that have a delivery time, and sets `news` for the scheduler loop."""

    def __init__(self, store: Store, pusher: Pusher) -> None:
        self._store = store
        self._pusher = pusher
        self.news = asyncio.Event()

    def is_scheduled(self, item: PushItem) -> bool:
        """Return True if the item has a delivery time in the future. Otherwise it is pushed like any other."""
        deliver_at, delay_ms = item.due
        if delay_ms is not None:
            return delay_ms > 0
        return deliver_at is not None and deliver_at > self._store.id_time() * 1000

    def wake(self) -> None:
        """Wake the scheduler loop, because messages were scheduled."""
        self.news.set()

    async def flush(self, requests: Sequence[PushRequest]) -> list[list[PushOutcome] | Exception]:
        """Schedule the items of all requests, in one call of the store; one outcome per item."""
        flight = PushFlight(requests)
        await self._pusher.pack(flight)
        await self._add_all(flight)
        return flight.outcomes

    async def _add_all(self, flight: PushFlight) -> None:
        pauses = iter(UNKNOWN_OUTCOME_PAUSES)
        try:
            for _ in range(_ROUNDS_MAX):
                if not (batches := list(flight.batches.values())):
                    break
                try:
                    results = await self._store.scheduled.add([scheduled_slice(batch, flight) for batch in batches])
                except OutcomeUnknown:
                    flight.maybe_applied = True
                    pause = next(pauses, None)
                    if pause is None or not all(batch.slice.options.dedup_seconds for batch in batches):
                        raise
                    await asyncio.sleep(pause)
                    recheck_ids(batches)
                    continue
                flight.maybe_applied = False
                await self.apply(flight, batches, results)
            else:
                raise StoreUnavailable("the queue kept changing during this push; try again")
        except FairlaneError as error:
            batches = list(flight.batches.values())
            if isinstance(error, LaneLocked | BrokerFailed) and len(batches) > 1:
                for batch in batches:  # one by one, so that a defect affects only its own message
                    flight.batches = {batch.partition: batch}
                    await self._add_all(flight)
                return
            flight.fail(as_outcome_unknown(error) if flight.maybe_applied else error)

    async def apply(self, flight: PushFlight, batches: Sequence[PartitionBatch], results: Sequence[PushResult]) -> None:
        """Apply results of scheduled slices. Undecided batches stay in `flight.batches` for another round."""
        for batch, result in zip(batches, results, strict=True):
            await self._settle(flight, batch, result)
        if any(isinstance(result, Added) for result in results):
            self.wake()

    async def _settle(self, flight: PushFlight, batch: PartitionBatch, result: PushResult) -> None:
        """Answer and remove decided messages. The rest goes to the store again."""
        if isinstance(result, Added):
            where = batch.slice.partition
            for owner, transaction_id, message_id, due_at in zip(
                batch.owners, batch.slice.transaction_ids, batch.message_ids, result.due_at, strict=True
            ):
                outcome = PushOutcome("scheduled", transaction_id, message_id, where, deliver_at=due_at)
                if batch.repeats:
                    flight.settle(batch, owner, outcome)
                else:
                    flight.put(owner, outcome)
            del flight.batches[batch.partition]
        elif not isinstance(result, Duplicates):
            await self._pusher.move(batch)
        else:
            for one in sorted(
                result.found, key=lambda one: one.index, reverse=True
            ):  # from the end, so that the positions of the others stay valid
                settle_scheduled(flight, batch, one)
            if not batch.owners:
                del flight.batches[batch.partition]


class ScheduledMessages(Resource):
    """Scheduled messages of a tenant."""

    async def cancel(self, queue: str, transaction_id: str, *, partition: str = DEFAULT_PARTITION) -> bool:
        """Cancel a scheduled message. Returns False if it is not scheduled."""
        found = await self._partition(queue, partition)
        check_name("transactionId", transaction_id)
        return found is not None and await self._store.scheduled.cancel(found, transaction_id)

    async def reschedule(
        self,
        queue: str,
        transaction_id: str,
        *,
        partition: str = DEFAULT_PARTITION,
        deliver_at: When | None = None,
        delay_ms: timedelta | int | None = None,
    ) -> Moment | None:
        """Reschedule a message. Returns its new time, or None if it is not scheduled."""
        item = PushItem(queue=queue, payload=b"", deliver_at=deliver_at, delay_ms=delay_ms)
        item.check_time()
        at, delay = item.due
        if at is None and delay is None:
            raise InvalidRequest("give deliverAt, which is a time, or delayMs, which counts from now")
        found = await self._partition(queue, partition)
        check_name("transactionId", transaction_id)
        if found is None:
            return None
        at = None if at is None else int(at)
        due_at = await self._store.scheduled.reschedule(found, transaction_id, due_at=at, delay_ms=delay or 0)
        self._engine.scheduler_loop.wake()
        return moment_or_none(due_at)

    async def page(self, queue: str, *, after: str = "", limit: int = 100) -> ScheduledPage:
        """Return scheduled messages, next due first. `after` is the end of the previous page."""
        check_count("limit", limit, least=1, most=COUNT_MAX)
        found = await self._catalogue.existing(self._tenant, queue)
        messages = await self._store.scheduled.page(found, after=_after(after), limit=limit)
        last = messages[-1] if len(messages) == limit else None
        return ScheduledPage(messages=messages, next=None if last is None else f"{int(last.deliver_at)}.{last.id}")

    async def _partition(self, queue: str, partition: str) -> PartitionId | None:
        found = await self._catalogue.existing(self._tenant, queue)
        named = await self._store.queues.named(found.id, check_name("partition", partition))
        return named.id if named else None


def _after(page: str) -> tuple[int, str] | None:
    if not page:
        return None
    match = _PAGE.fullmatch(page)
    if match is None:
        raise InvalidRequest(f"after is {page!r:.80}; it must be `next` of the previous page")
    return int(match[1]), match[2]


def settle_scheduled(flight: PushFlight, batch: PartitionBatch, found: Duplicate) -> None:
    """Answer and remove a message that is stored. If its key belongs to another id, it gets its next key."""
    index, transaction_id = found.index, batch.slice.transaction_ids[found.index]
    if found.transaction_id != transaction_id:
        batch.slice.keys[index] = id_key(transaction_id, salt=1)
        return
    outcome = PushOutcome("duplicate", transaction_id, found.message_id, batch.slice.partition)
    if found.message_id == batch.message_ids[index]:
        # Our own message of an earlier attempt. It may have become due meanwhile.
        outcome.status = "scheduled" if found.position == NOT_DUE else "queued"
        outcome.deliver_at = found.due_at
    flight.settle(batch, batch.drop(index), outcome)


def scheduled_slice(batch: PartitionBatch, flight: PushFlight) -> ScheduledSlice:
    """Return the slice of a batch with the times of its messages."""
    some = [flight.requests[request].items[index] for request, index in batch.owners]
    dues = [item.due for item in some]
    times = [None if at is None else int(at) for at, _ in dues]  # also converts moments
    delays = [delay or 0 for _, delay in dues]
    return ScheduledSlice(batch.slice, batch.partition[2], times, delays, repeated=flight.maybe_applied)
