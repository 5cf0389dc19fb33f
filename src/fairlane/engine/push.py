"""Push: what many requests bring becomes one slice per partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import cast

import msgspec

from fairlane.engine.catalogue import Catalogue
from fairlane.errors import FairlaneError, InvalidRequest, NotFound, OutcomeUnknown, QueueFull, StoreUnavailable
from fairlane.model.ids import Uuid7, consecutive_uuid7s, id_facts, id_key
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
        self.keys: set[int] = set()
        """Of given ids, each of which needs its own."""
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
    def __init__(self, store: Store, catalogue: Catalogue, ready: Callable[[int], None]) -> None:
        """`ready(queue_id)` is called for each lane that got messages."""
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
        wanted: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        for request in flush.requests:
            for item in request.items:
                wanted[request.tenant, item.queue][item.partition] = None
        homes: dict[Address, Home | FairlaneError] = {}
        for (tenant, name), partitions in wanted.items():
            try:
                homes.update(await self._homes(tenant, name, partitions))
            except FairlaneError as error:
                homes.update({(tenant, name, partition): error for partition in partitions})
        for number, request in enumerate(flush.requests):
            places = (homes[request.tenant, item.queue, item.partition] for item in request.items)
            refused = next((place for place in places if isinstance(place, FairlaneError)), None)
            if refused is not None:
                flush.outcomes[number] = refused
            else:
                self._pack(flush, number, request, homes)
        for draft in flush.drafts.values():
            draft.seal()

    async def _homes(self, tenant: str, name: str, partitions: Collection[str]) -> dict[Address, Home | FairlaneError]:
        """Queue and partition of each name, made where missing, or why it cannot be."""
        for _ in range(_ROUNDS_MAX):
            queue = await self._catalogue.queue(tenant, name, make=True)
            assert queue is not None, "a queue that is asked to be made is there"
            allowed = [label for label in partitions if queue.options.ordering != "fifo" or label == DEFAULT_PARTITION]
            refused = InvalidRequest(f"queue {name!r} is fifo: its only partition is {DEFAULT_PARTITION!r}")
            homes: dict[Address, Home | FairlaneError] = {
                (tenant, name, label): refused for label in partitions if label not in allowed
            }
            try:
                for label, home in (await self._catalogue.partitions(queue, allowed)).items():
                    homes[tenant, name, label] = (queue, home)
            except NotFound:
                self._catalogue.forget(queue.id)
                continue
            return homes
        raise StoreUnavailable(f"queue {name!r} kept being deleted under this push; try again")

    def _pack(
        self, flush: Flush, number: int, request: PushRequest, homes: Mapping[Address, Home | FairlaneError]
    ) -> None:
        tenant, count = request.tenant, len(request.items)
        first = self._ids.reserve(count)
        made_at = first >> 74
        message_ids, keys = consecutive_uuid7s(first, count)
        drafts = flush.drafts
        for index, item in enumerate(request.items):
            address = (tenant, item.queue, item.partition)
            draft = drafts.get(address)
            if draft is None:
                queue, partition = cast(Home, homes[address])
                part = Slice(partition.id, queue.id, queue.options, [], [], [], [], [])
                draft = drafts[address] = Draft(address, part)
            message_id, given_id = message_ids[index], item.transaction_id
            if given_id is None:
                transaction_id, key, id_time = message_id, keys[index], made_at
            else:
                transaction_id = given_id
                if draft.slice.options.dedup_seconds:
                    if given_id in draft.repeats:
                        draft.repeats[given_id].append((number, index))
                        continue
                    draft.repeats[given_id] = []
                key, maybe_time = id_facts(given_id)
                if key in draft.keys:
                    key = id_key(given_id, salt=1)
                draft.keys.add(key)
                id_time = NO_ID_TIME if maybe_time is None else maybe_time
            fragment = pack(message_id, transaction_id, item)
            draft.rows.append(
                (fragment, transaction_id, key, id_time, given_id is not None, message_id, (number, index))
            )

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
        for owner, transaction_id, message_id in zip(
            draft.owners, part.transaction_ids, draft.message_ids, strict=True
        ):
            outcome = PushOutcome("queued", transaction_id, message_id, where, position, depth, capacity)
            position += 1
            if draft.repeats:
                flush.settle(draft, owner, outcome)
            else:
                flush.put(owner, outcome)
        del flush.drafts[draft.address]
        self._ready(part.queue_id)

    async def _move(self, draft: Draft) -> None:
        """The queue was deleted or changed: look where its messages belong now."""
        part = draft.slice
        self._catalogue.forget(part.queue_id)
        tenant, name, label = draft.address
        home = (await self._homes(tenant, name, [label]))[draft.address]
        if isinstance(home, FairlaneError):
            raise home
        queue, partition = home
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
