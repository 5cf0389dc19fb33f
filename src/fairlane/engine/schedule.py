"""Scheduled messages: kept aside until they are due, cancelled and rescheduled by their transactionId."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from fairlane.engine.catalogue import Catalogue
from fairlane.engine.draft import Draft, Flush, PushRequest, doubt
from fairlane.engine.push import Pusher
from fairlane.errors import InvalidRequest, OutcomeUnknown, StoreUnavailable
from fairlane.model.ids import PartitionId, id_key
from fairlane.model.message import PushItem
from fairlane.model.names import check_name
from fairlane.model.outcome import PushOutcome
from fairlane.store.base import Store
from fairlane.store.values import Duplicate, Gone, Kept, Scheduled, Waiting

_ROUNDS_MAX = 100
_UNKNOWN_PAUSES = (0.1, 0.4, 1.6)


class Scheduler:
    """`wake` tells the timekeeper that there is something new to wait for."""

    def __init__(self, store: Store, catalogue: Catalogue, pusher: Pusher, wake: Callable[[], None]) -> None:
        self._store = store
        self._catalogue = catalogue
        self._pusher = pusher
        self._wake = wake

    def is_later(self, item: PushItem) -> bool:
        """Whether the item has a time that is still to come; otherwise it is pushed like any other."""
        if item.delay_ms is not None:
            return item.delay_ms > 0
        return item.deliver_at is not None and item.deliver_at > self._store.id_time() * 1000

    async def add(self, tenant: str, items: Sequence[PushItem]) -> list[PushOutcome]:
        """Keep each until it is due; one outcome per item."""
        flush = Flush([PushRequest(tenant, items)])
        await self._pusher.draft(flush)
        pauses = iter(_UNKNOWN_PAUSES)
        for _ in range(_ROUNDS_MAX):
            drafts = list(flush.drafts.values())
            if not drafts or isinstance(flush.outcomes[0], Exception):
                break
            parts = [_scheduled(draft, items) for draft in drafts]
            try:
                results = await self._store.schedules.add(parts)
            except OutcomeUnknown:
                if (pause := next(pauses, None)) is None:
                    raise
                await asyncio.sleep(pause)
                doubt(drafts)
                continue
            for draft, found in zip(drafts, results, strict=True):
                await self._settle(flush, draft, found)
        else:
            raise StoreUnavailable("the store kept changing under this push; try again")
        self._wake()
        if isinstance(error := flush.outcomes[0], Exception):
            raise error
        return error

    async def _settle(self, flush: Flush, draft: Draft, found: Sequence[Kept | Duplicate | Gone]) -> None:
        """Answer and drop what is decided; what is left goes to the store again."""
        moved = False
        for index in range(len(found) - 1, -1, -1):  # from the end, so that dropping one leaves the others in place
            result, transaction_id = found[index], draft.slice.transaction_ids[index]
            if isinstance(result, Gone):
                moved = True
                continue
            if isinstance(result, Duplicate) and result.transaction_id != transaction_id:
                draft.slice.keys[index] = id_key(transaction_id, salt=1)
                continue
            message_id = draft.message_ids[index]
            outcome = PushOutcome("scheduled", transaction_id, message_id, draft.slice.partition)
            if isinstance(result, Kept):
                outcome.deliver_at = result.due_at
            else:
                # Our own message of an earlier try may have become due meanwhile.
                outcome.status = "queued" if result.message_id == message_id else "duplicate"
                outcome.message_id = result.message_id
            flush.settle(draft, draft.drop(index), outcome)
        if moved:
            await self._pusher.move(draft)
        if not draft.owners:
            del flush.drafts[draft.address]

    async def cancel(self, tenant: str, queue: str, partition: str, transaction_id: str) -> bool:
        """False if it does not wait (any more)."""
        place = await self._place(tenant, queue, partition)
        check_name("transactionId", transaction_id)
        return place is not None and await self._store.schedules.cancel(place, transaction_id)

    async def reschedule(
        self, tenant: str, queue: str, partition: str, transaction_id: str, item: PushItem
    ) -> int | None:
        """The new time, which `item` names as a push would; None if the message does not wait (any more)."""
        item.check_time()
        if item.deliver_at is None and item.delay_ms is None:
            raise InvalidRequest("say when: deliverAt is a time, delayMs counts from now")
        place = await self._place(tenant, queue, partition)
        check_name("transactionId", transaction_id)
        if place is None:
            return None
        due_at = await self._store.schedules.reschedule(
            place, transaction_id, due_at=item.deliver_at, delay_ms=item.delay_ms or 0
        )
        self._wake()
        return due_at

    async def list(
        self, tenant: str, queue: str, *, after: tuple[int, str] | None = None, limit: int = 100
    ) -> list[Waiting]:
        found = await self._catalogue.existing(tenant, check_name("queue", queue))
        return await self._store.schedules.list(found.id, after=after, limit=limit)

    async def _place(self, tenant: str, queue: str, partition: str) -> PartitionId | None:
        found = await self._catalogue.existing(tenant, check_name("queue", queue))
        named = await self._store.queues.named(found.id, check_name("partition", partition))
        return named.id if named else None


def _scheduled(draft: Draft, items: Sequence[PushItem]) -> Scheduled:
    some = [items[index] for _, index in draft.owners]
    return Scheduled(
        draft.slice, draft.address[2], [item.deliver_at for item in some], [item.delay_ms or 0 for item in some]
    )
