"""A move of staged messages: checks them like any push, and pushes them in the transaction that deletes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.compiled_specs import AllSpecs
from fairlane.broker.priority import Priorities
from fairlane.broker.push import Pusher, settle_duplicates
from fairlane.broker.push_batch import UNDECIDED, PartitionBatch, PushFlight, PushRequest
from fairlane.broker.scheduled import Scheduler, scheduled_slice, settle_scheduled
from fairlane.broker.tenants import TenantQuota, Tenants
from fairlane.errors import ExpressionFailed, FairlaneError, InvalidRequest, PayloadInvalid
from fairlane.model.group import Subscription
from fairlane.model.ids import PartitionId
from fairlane.model.limits import ERROR_CHARS_MAX
from fairlane.model.message import PushItem, check_payload
from fairlane.model.names import DEFAULT_PARTITION, QUEUE_MODE, storable
from fairlane.model.outcome import PushOutcome
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Added, Duplicates, Full, Gone, ScheduledSlice, Stored
from fairlane.store.families.staged import Move, StagedMessage, Waiting

_ROUNDS_MAX = 100
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


class MoveParts(msgspec.Struct, frozen=True):
    """The components of a broker that a move needs."""

    store: Store
    catalogue: Catalogue
    tenants: Tenants
    specs: AllSpecs
    priorities: Priorities
    pusher: Pusher
    scheduler: Scheduler
    quotas: dict[str, TenantQuota] = {}


class StagedMove:
    """One move. After `run` it has what was stored, and which queues and partitions must wait."""

    def __init__(self, parts: MoveParts, move: Move) -> None:
        self.stored: dict[int, list[int]] = {}
        """Numbers of messages of each lane that got some, by queue."""
        self.has_scheduled = False
        self.waiting: dict[Waiting, str] = {}
        """Reasons by what must wait."""
        self._parts = parts
        self._move = move
        self._rows: list[list[StagedMessage]] = []
        """Staged messages by request and item of the flight."""
        self._unfit: dict[tuple[int, int], str] = {}
        """Errors of messages that become dead letters, by request and item."""
        self._refusals: list[tuple[int, PartitionId, int, str]] = []

    async def run(self) -> list[StagedMessage]:
        """Push the messages that can be pushed now, and return them."""
        requests: list[PushRequest] = []
        for _, group in groupby(self._move.messages, key=attrgetter("tenant_id", "queue")):
            rows = list(group)
            number = len(requests)
            try:
                items = await self._checked(number, rows)
            except FairlaneError as error:
                self._unfit = {owner: why for owner, why in self._unfit.items() if owner[0] != number}
                self._wait(rows[0], "", str(error))
                continue
            self._rows.append(rows)
            requests.append(PushRequest(rows[0].tenant, items, traced=False))
        flight, scheduled = await self._packed(requests)
        slices = [batch.slice for batch in (*flight.batches.values(), *scheduled.batches.values())]
        await self._move.lock(slices)
        await self._schedule(scheduled)
        await self._push(flight)
        for refusal in self._refusals:
            await self._move.refuse(*refusal)
        return [
            row
            for number, rows in enumerate(self._rows)
            for index, row in enumerate(rows)
            if self._is_done(flight.outcomes[number], index) or self._is_done(scheduled.outcomes[number], index)
        ]

    @staticmethod
    def _is_done(outcomes: list[PushOutcome] | Exception, index: int) -> bool:
        return isinstance(outcomes, list) and outcomes[index] is not UNDECIDED

    async def _checked(self, number: int, rows: Sequence[StagedMessage]) -> Sequence[PushItem]:
        """Return the rows of one queue as items, those that do not fit with their error in `_unfit`.

        Raises FairlaneError if the queue takes nothing now.
        """
        parts, tenant = self._parts, rows[0].tenant
        quota = parts.quotas.get(tenant)
        if quota is None:
            quota = parts.quotas[tenant] = TenantQuota(parts.store, tenant, parts.tenants)
        await quota.check()
        specs = parts.specs.of(tenant)
        if not specs.loaded:
            await parts.specs.reload()
        queue = await parts.catalogue.queue(tenant, rows[0].queue, make=True)
        assert queue is not None, "a queue that is asked to be made is there"
        items: list[PushItem] = []
        for index, row in enumerate(rows):
            item = _item(row)
            try:
                item.check()
                check_payload(item.payload)
                if queue.options.ordering == "fifo" and item.partition != DEFAULT_PARTITION:
                    raise InvalidRequest(f"queue {queue.name!r} is fifo: its only partition is {DEFAULT_PARTITION!r}")
                if not specs.idle:
                    [item] = specs.admit_steps([item])
            except (InvalidRequest, PayloadInvalid, ExpressionFailed) as error:
                self._unfit[number, index] = storable(f"enqueued, and refused: {error}", chars_max=ERROR_CHARS_MAX)
                item = _unfit_item(row)
            items.append(item)
        unfit = any(owner[0] == number for owner in self._unfit)
        if unfit and not await parts.store.groups.all(queue.id):
            await parts.store.groups.subscribe(queue.id, QUEUE_MODE, Subscription(look=True))
        return await parts.priorities.apply(tenant, items, away=False)

    async def _packed(self, requests: Sequence[PushRequest]) -> tuple[PushFlight, PushFlight]:
        """Return a flight of what is pushed now, and one of what is scheduled, with the same requests."""
        flight, scheduled = PushFlight(requests), PushFlight(requests)
        await self._parts.pusher.pack(flight)
        for number, outcome in enumerate(flight.outcomes):
            if isinstance(outcome, Exception):
                self._wait(self._rows[number][0], "", str(outcome))
        is_scheduled = self._parts.scheduler.is_scheduled
        for batch in list(flight.batches.values()):
            rows = [self._rows[number][index] for number, index in batch.owners]
            batch.slice.given = [row.given for row in rows]
            due = [
                offset
                for offset, (number, index) in enumerate(batch.owners)
                if (number, index) not in self._unfit and is_scheduled(requests[number].items[index])
            ]
            if due:
                self.has_scheduled = True
                _split(flight, scheduled, batch, due)
        return flight, scheduled

    async def _push(self, flight: PushFlight) -> None:
        for _ in range(_ROUNDS_MAX):
            batches = flight.undecided_batches()
            if not batches:
                return
            results = await self._move.push([batch.slice for batch in batches])
            full: dict[int, tuple[Full, list[PartitionBatch]]] = {}
            for batch, result in zip(batches, results, strict=True):
                if isinstance(result, Stored):
                    self._settle_stored(flight, batch, result)
                elif isinstance(result, Duplicates):
                    settle_duplicates(flight, batch, result)
                elif isinstance(result, Full):
                    full.setdefault(batch.slice.queue_id, (result, []))[1].append(batch)
                elif isinstance(result, Gone):
                    await self._parts.pusher.move(batch)
                else:
                    self._postpone(flight, batch, "operations of the partition come first, or it is locked")
            for result, some in full.values():
                self._fit(flight, result, some)

    def _settle_stored(self, flight: PushFlight, batch: PartitionBatch, result: Stored) -> None:
        part = batch.slice
        for offset, owner in enumerate(batch.owners):
            transaction_id, position = part.transaction_ids[offset], result.first + offset
            flight.settle(batch, owner, PushOutcome("queued", transaction_id, partition=part.partition))
            if owner in self._unfit:
                self._refusals.append((part.queue_id, part.partition, position, self._unfit[owner]))
        self.stored.setdefault(part.queue_id, []).append(len(batch.owners))
        del flight.batches[batch.partition]

    def _fit(self, flight: PushFlight, result: Full, batches: Sequence[PartitionBatch]) -> None:
        """Keep as many messages of a full queue as it takes, the first of each partition. The rest waits."""
        room = max(0, result.capacity - result.depth)
        for batch in batches:
            kept = min(room, len(batch.owners))
            if kept < len(batch.owners):
                self._wait(self._row(batch), "", f"the queue is full: {result.depth} of {result.capacity}")
            for offset in reversed(range(kept, len(batch.owners))):
                batch.drop(offset)
            room -= kept

    async def _schedule(self, flight: PushFlight) -> None:
        for _ in range(_ROUNDS_MAX):
            batches = flight.undecided_batches()
            if not batches:
                return
            parts: list[ScheduledSlice] = [scheduled_slice(batch, flight) for batch in batches]
            for batch, result in zip(batches, await self._move.schedule(parts), strict=True):
                if isinstance(result, Added):
                    for owner, transaction_id in zip(batch.owners, batch.slice.transaction_ids, strict=True):
                        flight.settle(batch, owner, PushOutcome("scheduled", transaction_id))
                    del flight.batches[batch.partition]
                elif isinstance(result, Gone):
                    await self._parts.pusher.move(batch)
                elif isinstance(result, Duplicates):
                    for one in sorted(result.found, key=lambda one: one.index, reverse=True):
                        settle_scheduled(flight, batch, one)
                else:
                    self._postpone(flight, batch, "the partition is locked")

    def _postpone(self, flight: PushFlight, batch: PartitionBatch, why: str) -> None:
        for number, index in batch.owners:
            row = self._rows[number][index]
            self._wait(row, row.partition, why)
        del flight.batches[batch.partition]

    def _row(self, batch: PartitionBatch) -> StagedMessage:
        number, index = batch.owners[0]
        return self._rows[number][index]

    def _wait(self, row: StagedMessage, partition: str, why: str) -> None:
        self.waiting[Waiting(row.tenant_id, row.queue, partition)] = why


def _split(flight: PushFlight, scheduled: PushFlight, batch: PartitionBatch, due: Iterable[int]) -> None:
    """Move the messages at these offsets of a batch to the batch of its partition in another flight."""
    chosen = set(due)
    rest = [offset for offset in range(len(batch.owners)) if offset not in chosen]
    scheduled.batches[batch.partition] = batch.pick(sorted(chosen))
    if rest:
        flight.batches[batch.partition] = batch.pick(rest)
    else:
        del flight.batches[batch.partition]


def _item(row: StagedMessage) -> PushItem:
    return PushItem(
        queue=row.queue,
        payload=row.payload,
        partition=row.partition,
        transaction_id=row.transaction_id,
        type=row.type,
        headers=None if row.headers is None else _decode_headers(row.headers),
        deliver_at=row.deliver_at,
        priority=row.priority,
        max_attempts=row.max_attempts,
    )


def _unfit_item(row: StagedMessage) -> PushItem:
    """Return an item that can be stored, whatever is wrong with the message: in the default partition, as JSON."""
    payload = row.payload
    try:
        check_payload(payload)
    except InvalidRequest:
        payload = msgspec.json.encode(payload.decode(errors="replace"))
    return PushItem(queue=row.queue, payload=payload, transaction_id=row.transaction_id, type=row.type)
