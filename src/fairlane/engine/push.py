"""Push: what many requests bring becomes one slice per partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import msgspec

from fairlane.engine.catalogue import Catalogue
from fairlane.errors import FairlaneError, InvalidRequest, NotFound, OutcomeUnknown, QueueFull, StoreUnavailable
from fairlane.model.ids import Uuid7, id_facts, id_key
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.outcome import PushOutcome
from fairlane.model.queue import Partition, Queue
from fairlane.model.segment import pack
from fairlane.store.base import Store
from fairlane.store.values import NO_ID_TIME, Duplicate, Duplicates, Full, PushResult, Slice, Stored

_ROUNDS_MAX = 100
"""A flush goes round again after a refusal of the store: a duplicate, a full queue, a deleted one. Each round
settles some."""
_UNKNOWN_PAUSES = (0.1, 0.4, 1.6)

Address = tuple[str, str, str]
Home = tuple[Queue, Partition]
_UNDECIDED = PushOutcome(status="refused", transaction_id="")


class PushRequest(msgspec.Struct):
    tenant: str
    items: Sequence[PushItem]


class Draft:
    """A slice in the making and whose messages it holds: the n-th is item `owners[n]` = (request, index)."""

    __slots__ = ("address", "keys", "message_ids", "owners", "repeats", "rows", "slice")

    def __init__(self, address: Address, part: Slice) -> None:
        self.address = address
        self.slice = part
        self.owners: list[tuple[int, int]] = []
        self.message_ids: list[str] = []
        self.keys: dict[int, str] = {}
        """Given ids by their keys: each id needs its own."""
        self.repeats: dict[str, list[tuple[int, int]]] = {}
        """Given transactionId -> further items of this flush that carry it."""
        self.rows: list[tuple[bytes, str, int, int, bool, str, tuple[int, int]]] = []
        """What `seal` makes the columns of."""

    def seal(self) -> None:
        part = self.slice
        columns = map(list, zip(*self.rows, strict=True))
        (
            part.fragments,
            part.transaction_ids,
            part.keys,
            part.id_times,
            part.given,
            self.message_ids,
            self.owners,
        ) = columns
        self.rows.clear()

    def drop(self, index: int) -> tuple[int, int]:
        """Take one message out; its owner."""
        part = self.slice
        for column in (part.fragments, part.transaction_ids, part.keys, part.id_times, part.given, self.message_ids):
            del column[index]
        return self.owners.pop(index)


class Flush:
    """Requests on their way into the store. `outcomes` has a list for each request, or its error."""

    def __init__(self, requests: Sequence[PushRequest]) -> None:
        self.requests = requests
        self.outcomes: list[list[PushOutcome] | Exception] = [[_UNDECIDED] * len(request.items) for request in requests]
        self.drafts: dict[Address, Draft] = {}

    def fail(self, error: Exception) -> None:
        """The requests with messages still on their way get the error."""
        for draft in self.drafts.values():
            for request, _ in draft.owners:
                self.outcomes[request] = error
        self.drafts.clear()

    def settle(self, draft: Draft, owner: tuple[int, int], outcome: PushOutcome) -> None:
        self.put(owner, outcome)
        for repeat in draft.repeats.pop(outcome.transaction_id, ()):
            self.put(repeat, outcome if outcome.status == "refused" else _as_duplicate(outcome))

    def put(self, owner: tuple[int, int], outcome: PushOutcome) -> None:
        request, index = owner
        answers = self.outcomes[request]
        if type(answers) is list:
            answers[index] = outcome


def _as_duplicate(outcome: PushOutcome) -> PushOutcome:
    return msgspec.structs.replace(outcome, status="duplicate")


class Pusher:
    def __init__(
        self, store: Store, catalogue: Catalogue, ready: Callable[[int, Sequence[tuple[int, int]]], None]
    ) -> None:
        """`ready(queue_id, owners)` is called for each lane that got messages, with whose they are."""
        self._store = store
        self._catalogue = catalogue
        self._ready = ready
        self._ids = Uuid7(store.id_time)

    async def flush(self, requests: Sequence[PushRequest]) -> list[list[PushOutcome] | Exception]:
        flush = Flush(requests)
        await self.draft(flush)
        pauses = iter(_UNKNOWN_PAUSES)
        for _ in range(_ROUNDS_MAX):
            drafts = list(flush.drafts.values())
            if not drafts:
                return flush.outcomes
            try:
                results = await self._store.messages.push([draft.slice for draft in drafts])
                await self.apply(flush, drafts, results)
            except OutcomeUnknown as error:
                pause = next(pauses, None)
                if pause is None or not all(draft.slice.options.dedup_seconds for draft in drafts):
                    flush.fail(error)
                    return flush.outcomes
                await asyncio.sleep(pause)
                doubt(drafts)
            except FairlaneError as error:
                flush.fail(error)
        flush.fail(StoreUnavailable("the store kept changing under this push; try again"))
        return flush.outcomes

    async def draft(self, flush: Flush) -> None:
        """Find or make every partition, then pack every message. A request that names what cannot be had fails
        alone."""
        addresses = [
            [(request.tenant, item.queue, item.partition) for item in request.items] for request in flush.requests
        ]
        wanted: dict[tuple[str, str], list[str]] = defaultdict(list)
        for tenant, name, partition in dict.fromkeys(chain.from_iterable(addresses)):
            wanted[tenant, name].append(partition)
        homes: dict[Address, Home] = {}
        refused: dict[Address, FairlaneError] = {}
        for (tenant, name), partitions in wanted.items():
            try:
                await self._homes(tenant, name, partitions, homes, refused)
            except FairlaneError as error:
                refused |= {(tenant, name, partition): error for partition in partitions}
        for number, request in enumerate(flush.requests):
            if refused and (errors := [refused[one] for one in addresses[number] if one in refused]):
                flush.outcomes[number] = errors[0]
            else:
                self._pack(flush, number, request, addresses[number], homes)
        for draft in flush.drafts.values():
            draft.seal()

    async def _homes(
        self,
        tenant: str,
        name: str,
        partitions: Sequence[str],
        homes: dict[Address, Home],
        refused: dict[Address, FairlaneError],
    ) -> None:
        """Queue and partition of each name, made where missing, or why it cannot be."""
        for _ in range(_ROUNDS_MAX):
            queue = await self._catalogue.queue(tenant, name, make=True)
            assert queue is not None, "a queue that is asked to be made is there"
            allowed = partitions
            if queue.options.ordering == "fifo":
                allowed = [label for label in partitions if label == DEFAULT_PARTITION]
                error = InvalidRequest(f"queue {name!r} is fifo: its only partition is {DEFAULT_PARTITION!r}")
                refused |= {(tenant, name, label): error for label in partitions if label != DEFAULT_PARTITION}
            try:
                for label, home in (await self._catalogue.partitions(queue, allowed)).items():
                    homes[tenant, name, label] = (queue, home)
            except NotFound:
                self._catalogue.forget(queue.id)
                continue
            return
        raise StoreUnavailable(f"queue {name!r} kept being deleted under this push; try again")

    def _pack(
        self, flush: Flush, number: int, request: PushRequest, addresses: list[Address], homes: dict[Address, Home]
    ) -> None:
        message_ids, keys, made_at = self._ids.many(len(request.items))
        drafts = flush.drafts
        index = -1
        for item, address, message_id, key in zip(request.items, addresses, message_ids, keys, strict=True):
            index += 1
            draft = drafts.get(address)
            if draft is None:
                queue, partition = homes[address]
                part = Slice(partition.id, queue.id, queue.options, [], [], [], [], [])
                draft = drafts[address] = Draft(address, part)
            given_id = item.transaction_id
            if given_id is None:
                fragment = pack(message_id, message_id, item)
                draft.rows.append((fragment, message_id, key, made_at, False, message_id, (number, index)))
                continue
            key, id_time = id_facts(given_id)
            same = draft.keys.get(key)
            if same is not None:
                if same == given_id and draft.slice.options.dedup_seconds:
                    draft.repeats.setdefault(given_id, []).append((number, index))
                    continue
                if same != given_id:
                    key = id_key(given_id, salt=1)
            draft.keys[key] = given_id
            fragment = pack(message_id, given_id, item)
            id_time = NO_ID_TIME if id_time is None else id_time
            draft.rows.append((fragment, given_id, key, id_time, True, message_id, (number, index)))

    async def apply(self, flush: Flush, drafts: Sequence[Draft], results: Sequence[PushResult]) -> None:
        """Answer what is decided; what is left in `flush.drafts` goes to the store again."""
        full: dict[int, list[tuple[Draft, Full]]] = defaultdict(list)
        for draft, result in zip(drafts, results, strict=True):
            if isinstance(result, Stored):
                self._stored(flush, draft, result)
            elif isinstance(result, Duplicates):
                _duplicates(flush, draft, result)
            elif isinstance(result, Full):
                full[draft.slice.queue_id].append((draft, result))
            else:
                await self._move(draft)
        for refusals in full.values():
            _make_room(flush, refusals)
        flush.drafts = {address: draft for address, draft in flush.drafts.items() if draft.owners}

    def _stored(self, flush: Flush, draft: Draft, result: Stored) -> None:
        part, position = draft.slice, result.first
        where, depth, capacity = part.partition, result.depth, result.capacity
        repeated, outcomes = bool(draft.repeats), flush.outcomes
        for owner, transaction_id, message_id in zip(
            draft.owners, part.transaction_ids, draft.message_ids, strict=True
        ):
            outcome = PushOutcome("queued", transaction_id, message_id, where, position, depth, capacity)
            position += 1
            if repeated:
                flush.settle(draft, owner, outcome)
            else:
                request, index = owner
                answers = outcomes[request]
                if type(answers) is list:
                    answers[index] = outcome
        del flush.drafts[draft.address]
        self._ready(part.queue_id, draft.owners)

    async def _move(self, draft: Draft) -> None:
        """The queue was deleted or changed: look where its messages belong now."""
        part = draft.slice
        self._catalogue.forget(part.queue_id)
        tenant, name, label = draft.address
        homes: dict[Address, Home] = {}
        refused: dict[Address, FairlaneError] = {}
        await self._homes(tenant, name, [label], homes, refused)
        if refused:
            raise refused[draft.address]
        queue, partition = homes[draft.address]
        part.partition, part.queue_id, part.options = partition.id, queue.id, queue.options


def doubt(drafts: Iterable[Draft]) -> None:
    """After an unknown outcome any of these messages may be stored, so that each must be looked up."""
    for draft in drafts:
        draft.slice.given = [True] * len(draft.owners)


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
            partition=part.partition,
            position=found.position,
        )
        flush.settle(draft, draft.drop(index), outcome)


def _make_room(flush: Flush, refusals: list[tuple[Draft, Full]]) -> None:
    """Keep the requests' parts that fit, in the order they came; each part goes whole or not at all."""
    depth = max(result.depth for _, result in refusals)
    capacity = refusals[0][1].capacity
    parts: dict[tuple[int, Address], list[int]] = defaultdict(list)
    by_address = {draft.address: draft for draft, _ in refusals}
    for draft, _ in refusals:
        for offset, (request, _) in enumerate(draft.owners):
            parts[request, draft.address].append(offset)
    room = capacity - depth
    out: dict[Address, list[int]] = defaultdict(list)
    for (_, address), offsets in sorted(parts.items()):
        if len(offsets) <= room:
            room -= len(offsets)
        else:
            out[address] += offsets
    error = QueueFull(f"the queue is full: {depth} of {capacity} places are taken", depth=depth, capacity=capacity)
    for address, offsets in out.items():
        draft = by_address[address]
        for offset in sorted(offsets, reverse=True):
            transaction_id = draft.slice.transaction_ids[offset]
            outcome = PushOutcome(
                status="refused", transaction_id=transaction_id, depth=depth, capacity=capacity, error=error
            )
            flush.settle(draft, draft.drop(offset), outcome)
