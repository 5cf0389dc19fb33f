"""Scheduled messages: stored until they are due, cancelled and rescheduled by their transactionId."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta

from fairlane.broker.part import Part
from fairlane.broker.push import Pusher
from fairlane.broker.push_batch import Draft, Flush, PushRequest, doubt
from fairlane.broker.unknown import UNKNOWN_PAUSES, still_unknown
from fairlane.errors import BrokerFailed, FairlaneError, InvalidRequest, LaneLocked, OutcomeUnknown, StoreUnavailable
from fairlane.model.ids import PartitionId, id_key
from fairlane.model.limits import COUNT_MAX
from fairlane.model.message import PushItem
from fairlane.model.moment import Moment, When, moment_or_none
from fairlane.model.names import DEFAULT_PARTITION, check_count, check_name
from fairlane.model.outcome import PushOutcome
from fairlane.runtime.service import Service
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import NOT_DUE, Added, Duplicate, Duplicates, Gone, ScheduledSlice
from fairlane.wire.scheduled import ScheduledPage

_ROUNDS_MAX = 100
_PAGE = re.compile(r"(\d{1,16})\.([0-9a-f-]{36})", re.ASCII)


class Scheduler:
    """The way of messages with a delivery time into the store; `due` is told that there is something new to wait
    for."""

    def __init__(self, store: Store, pusher: Pusher, due: Service) -> None:
        self._store = store
        self._pusher = pusher
        self._due = due

    def is_scheduled(self, item: PushItem) -> bool:
        """Whether the item has a time that is still to come; otherwise it is pushed like any other."""
        deliver_at, delay_ms = item.due
        if delay_ms is not None:
            return delay_ms > 0
        return deliver_at is not None and deliver_at > self._store.id_time() * 1000

    async def flush(self, requests: Sequence[PushRequest]) -> list[list[PushOutcome] | Exception]:
        """Schedule the items of all requests, in one call of the store; one outcome per item."""
        flush = Flush(requests)
        await self._pusher.draft(flush)
        await self._add_all(flush)
        self._due.wake()
        return flush.outcomes

    async def _add_all(self, flush: Flush) -> None:
        pauses = iter(UNKNOWN_PAUSES)
        try:
            for _ in range(_ROUNDS_MAX):
                if not (drafts := list(flush.drafts.values())):
                    break
                try:
                    results = await self._store.scheduled.add([_scheduled(draft, flush) for draft in drafts])
                except OutcomeUnknown:
                    flush.doubtful = True
                    pause = next(pauses, None)
                    if pause is None or not all(draft.slice.options.dedup_seconds for draft in drafts):
                        raise
                    await asyncio.sleep(pause)
                    doubt(drafts)
                    continue
                flush.doubtful = False
                for draft, result in zip(drafts, results, strict=True):
                    await self._settle(flush, draft, result)
            else:
                raise StoreUnavailable("the store kept changing under this push; try again")
        except FairlaneError as error:
            drafts = list(flush.drafts.values())
            if isinstance(error, LaneLocked | BrokerFailed) and len(drafts) > 1:
                for draft in drafts:  # one by one, so that the one it is about fails alone
                    flush.drafts = {draft.partition: draft}
                    await self._add_all(flush)
                return
            flush.fail(still_unknown(error) if flush.doubtful else error)

    async def _settle(self, flush: Flush, draft: Draft, result: Added | Duplicates | Gone) -> None:
        """Answer and drop what is decided; what is left goes to the store again."""
        if isinstance(result, Added):
            where = draft.slice.partition
            for owner, transaction_id, message_id, due_at in zip(
                draft.owners, draft.slice.transaction_ids, draft.message_ids, result.due_at, strict=True
            ):
                outcome = PushOutcome("scheduled", transaction_id, message_id, where, deliver_at=due_at)
                if draft.repeats:
                    flush.settle(draft, owner, outcome)
                else:
                    flush.put(owner, outcome)
            del flush.drafts[draft.partition]
        elif isinstance(result, Gone):
            await self._pusher.move(draft)
        else:
            for one in sorted(
                result.found, key=lambda one: one.index, reverse=True
            ):  # so that the others stay in place
                _known(flush, draft, one)
            if not draft.owners:
                del flush.drafts[draft.partition]


class ScheduledMessages(Part):
    """Scheduled messages of a tenant."""

    async def cancel(self, queue: str, transaction_id: str, *, partition: str = DEFAULT_PARTITION) -> bool:
        """Forget a scheduled message; False if it does not wait (any more)."""
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
        """Let a scheduled message be due at another time; that time, None if it does not wait (any more)."""
        item = PushItem(queue=queue, payload=b"", deliver_at=deliver_at, delay_ms=delay_ms)
        item.check_time()
        at, delay = item.due
        if at is None and delay is None:
            raise InvalidRequest("say when: deliverAt is a time, delayMs counts from now")
        found = await self._partition(queue, partition)
        check_name("transactionId", transaction_id)
        if found is None:
            return None
        at = None if at is None else int(at)
        due_at = await self._store.scheduled.reschedule(found, transaction_id, due_at=at, delay_ms=delay or 0)
        self._broker.due.wake()
        return moment_or_none(due_at)

    async def list(self, queue: str, *, after: str = "", limit: int = 100) -> ScheduledPage:
        """Messages that wait for their time, next due first; `after` is where the page before ended."""
        check_count("limit", limit, least=1, most=COUNT_MAX)
        found = await self._catalogue.existing(self._tenant, queue)
        messages = await self._store.scheduled.list(found, after=_after(after), limit=limit)
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
        raise InvalidRequest(f"after is {page!r:.80}; it must be `next` of the page before")
    return int(match[1]), match[2]


def _known(flush: Flush, draft: Draft, found: Duplicate) -> None:
    index, transaction_id = found.index, draft.slice.transaction_ids[found.index]
    if found.transaction_id != transaction_id:
        draft.slice.keys[index] = id_key(transaction_id, salt=1)
        return
    outcome = PushOutcome("duplicate", transaction_id, found.message_id, draft.slice.partition)
    if found.message_id == draft.message_ids[index]:
        # Our own message of an earlier try; it may have become due meanwhile.
        outcome.status = "scheduled" if found.position == NOT_DUE else "queued"
        outcome.deliver_at = found.due_at
    flush.settle(draft, draft.drop(index), outcome)


def _scheduled(draft: Draft, flush: Flush) -> ScheduledSlice:
    some = [flush.requests[request].items[index] for request, index in draft.owners]
    dues = [item.due for item in some]
    times = [None if at is None else int(at) for at, _ in dues]  # of moments as well
    delays = [delay or 0 for _, delay in dues]
    return ScheduledSlice(draft.slice, draft.partition[2], times, delays, repeated=flush.doubtful)
