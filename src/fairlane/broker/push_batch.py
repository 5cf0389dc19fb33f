"""Push batches: packs the items of many requests into one slice per partition, addressed by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from fairlane.errors import InvalidRequest, LaneLocked, OutcomeUnknown
from fairlane.model.ids import PartitionId, id_key, ids_facts
from fairlane.model.message import PushItem
from fairlane.model.outcome import PushOutcome
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import PLAIN, pack
from fairlane.store.contract.values import NO_ID_TIME, Slice

if TYPE_CHECKING:
    from fairlane.broker.admission import Admission

PartitionName = tuple[str, str, str]
"""Tenant, queue and partition by name."""
UNDECIDED = PushOutcome(status="refused", transaction_id="")
_NO_IDS = "the store may or may not have stored this, and the queue does not detect duplicates"


class PushRequest(msgspec.Struct):
    tenant: str
    items: Sequence[PushItem]
    special: bool = False
    """True if some items have a delivery time, a priority or a traceId."""
    traced: bool = False
    """True if some items have a traceId, by which they can be found."""
    queues: set[str] | None = None
    """Queues that the items name. None if not determined yet."""
    plain: bool = False
    """True if no item has more than its payload and possibly a transactionId."""
    can_wait: bool = False
    """True to raise `BlockedByOperations` if a partition has open operations, instead of adding more."""


class BlockedByOperations(Exception):  # not an error: the caller waits and then pushes the rest
    """Some items of a request were not stored, because their partition has open operations: those at `indexes`."""

    def __init__(self, outcomes: list[PushOutcome], indexes: list[int]) -> None:
        super().__init__("the partition has open operations")
        self.outcomes = outcomes
        self.indexes = indexes


class PartitionBatch(msgspec.Struct, eq=False):
    """A slice under construction. Message n belongs to item `owners[n]` = (request, index)."""

    partition: PartitionName
    slice: Slice
    owners: list[tuple[int, int]] = []
    message_ids: list[str] = []
    repeats: dict[str, list[tuple[int, int]]] = {}
    """Further items of this flight by the transactionId that they repeat."""

    def by_request(self) -> list[PartitionBatch]:
        """Split into one batch per request, in the order the requests came."""
        indexes: dict[int, list[int]] = {}
        for index, (request, _) in enumerate(self.owners):
            indexes.setdefault(request, []).append(index)
        return [self.pick(some) for some in indexes.values()]

    def pick(self, indexes: list[int]) -> PartitionBatch:
        part = self.slice
        names = ("fragments", "transaction_ids", "keys", "id_times", "given")
        columns = {name: [getattr(part, name)[index] for index in indexes] for name in names}
        batch = PartitionBatch(self.partition, msgspec.structs.replace(part, **columns))
        batch.owners = [self.owners[index] for index in indexes]
        batch.message_ids = [self.message_ids[index] for index in indexes]
        batch.repeats = {id: self.repeats[id] for id in columns["transaction_ids"] if id in self.repeats}
        return batch

    def operation_ranges(self) -> list[tuple[int, int]]:
        """Return the (start, end) ranges that become one operation each: of one request, without a repeated id."""
        cuts = [0]
        ids: set[str] = set()
        for index, ((request, _), id) in enumerate(zip(self.owners, self.slice.transaction_ids, strict=True)):
            if request != self.owners[cuts[-1]][0] or id in ids:
                cuts.append(index)
                ids.clear()
            ids.add(id)
        return list(pairwise([*cuts, len(self.owners)]))

    def all_owners(self) -> Iterable[tuple[int, int]]:
        """Return all owners, including those of repeats."""
        return chain(self.owners, *self.repeats.values())

    def drop(self, index: int) -> tuple[int, int]:
        """Remove one message and return its owner."""
        part = self.slice
        for column in (part.fragments, part.transaction_ids, part.keys, part.id_times, part.given, self.message_ids):
            del column[index]
        return self.owners.pop(index)


class PushFlight:
    """Push requests in flight to the store. `outcomes` has a list for each request, or its error."""

    def __init__(self, requests: Sequence[PushRequest], limits: Admission | None = None) -> None:
        self.requests = requests
        self.limits = limits  # refuses further operations when there are too many; None for no limit
        self.abandoned = False
        """True if the caller no longer waits. Nothing more is sent to the store."""
        self.maybe_applied = False
        """True if the store may have applied what it was last given."""
        self.partial: dict[int, list[PushOutcome]] = {}
        """Outcomes of a request that were decided before it failed."""
        self.failed: list[PartitionBatch] = []
        """Batches that were in flight when their request failed."""
        self.outcomes: list[list[PushOutcome] | Exception] = [[UNDECIDED] * len(request.items) for request in requests]
        self.batches: dict[PartitionName, PartitionBatch] = {}
        self.locked: dict[PartitionName, PartitionBatch] = {}
        """Batches whose partitions another session has locked."""
        self.blocked: dict[int, list[int]] = {}
        """Items of each request whose partition has open operations that the request would rather wait for."""

    def undecided_batches(self) -> list[PartitionBatch]:
        """Return the batches that still have messages, and drop the others."""
        self.batches = {partition: batch for partition, batch in self.batches.items() if batch.owners}
        return list(self.batches.values())

    def is_deduplicated(self) -> bool:
        """Return True if every queue in flight detects repeats, so that the journal may take them too."""
        return all(batch.slice.options.dedup_seconds for batch in self.batches.values())

    def can_wait(self, batch: PartitionBatch) -> bool:
        """Return True if every owner would rather wait than have its messages made operations."""
        return all(self.requests[request].can_wait for request, _ in batch.owners)

    def mark_blocked(self, batch: PartitionBatch) -> None:
        """Take a batch out of the flight, because its partition has open operations."""
        del self.batches[batch.partition]
        for request, index in batch.all_owners():
            self.blocked.setdefault(request, []).append(index)

    def report_blocked(self) -> None:
        """Answer requests that have blocked messages, except those that still wait for a locked partition."""
        locked = {request for batch in self.locked.values() for request, _ in batch.all_owners()}
        for request, indexes in self.blocked.items():
            if request not in locked and type(answers := self.outcomes[request]) is list:
                self.outcomes[request] = BlockedByOperations(answers, sorted(indexes))

    def fail(self, error: Exception, some: Sequence[PartitionBatch] | None = None) -> None:
        """Answer every request in flight with the error, or only the owners of `some` batches."""
        failed = list(self.batches.values()) if some is None else some
        for batch in failed:
            for request, _ in batch.all_owners():
                if type(answers := self.outcomes[request]) is list:
                    self.partial[request] = answers
                self.outcomes[request] = error
            self.batches.pop(batch.partition, None)
        self.failed += failed

    def mark_locked(self, batch: PartitionBatch) -> None:
        """Set a batch aside, because its partition is locked."""
        self.locked[batch.partition] = self.batches.pop(batch.partition)

    def fail_locked(self) -> None:
        """Fail the locked batches. Call it after all else is decided: a request may be in several batches."""
        if self.locked:
            locked, self.locked = list(self.locked.values()), {}
            _, queue, partition = locked[0].partition
            error = f"partition {partition!r} of queue {queue!r} is locked by another database session; try again"
            self.fail(LaneLocked(error), locked)

    def rest(self, lost: Collection[int]) -> PushFlight:
        """Return the undecided part of the `lost` requests as a new flight, so that this one may continue.

        A request gets an error if some of it may be stored in a queue that does not detect repeats.
        """
        rest = PushFlight(self.requests)
        rest.maybe_applied = self.maybe_applied
        for number, outcome in enumerate(self.outcomes):
            known = self.partial.get(number, outcome) if number in lost else outcome
            if isinstance(known, list):
                rest.outcomes[number] = list(known)
            elif number not in lost:
                rest.outcomes[number] = known
        batches = (*self.failed, *self.batches.values(), *self.locked.values())
        rest.failed = [part for batch in batches for part in batch.by_request() if part.owners[0][0] in lost]
        for part in rest.failed:
            if self.maybe_applied and not part.slice.options.dedup_seconds:
                rest.refuse(part, OutcomeUnknown(_NO_IDS))
        return rest

    def undecided(self) -> list[tuple[int, int]]:
        """Return items without an outcome that are in no batch."""
        batched = {owner for batch in self.failed for owner in batch.all_owners()}
        return [
            (number, index)
            for number, outcomes in enumerate(self.outcomes)
            for index, outcome in enumerate(outcomes if isinstance(outcomes, list) else ())
            if outcome is UNDECIDED and (number, index) not in batched
        ]

    def refuse(self, batch: PartitionBatch, error: Exception) -> None:
        """Answer all owners of a batch with the error."""
        for request, _ in batch.all_owners():
            self.refuse_request(request, error)

    def refuse_request(self, request: int, error: Exception) -> None:
        """Answer a request with the error, or with OutcomeUnknown if some of its messages are or may be stored."""
        answers = self.outcomes[request]
        accepted = isinstance(answers, list) and any(one.status != "refused" for one in answers)
        if (accepted or self.maybe_applied) and not isinstance(error, InvalidRequest | OutcomeUnknown):
            how = "part of this push was accepted" if accepted else "the store may or may not have stored this"
            error = OutcomeUnknown(f"{how}, and the journal cannot take the rest: {error}")
        self.outcomes[request] = error

    def answer(self, batch: PartitionBatch, where: tuple[int, int], outcome: PushOutcome) -> None:
        """Answer the messages in the range `where`, and remove them from the batch."""
        for index in reversed(range(*where)):  # from the end, so that the positions of the others stay valid
            id = batch.slice.transaction_ids[index]
            self.settle(batch, batch.drop(index), msgspec.structs.replace(outcome, transaction_id=id))

    def settle(self, batch: PartitionBatch, owner: tuple[int, int], outcome: PushOutcome) -> None:
        self.put(owner, outcome)
        for again in batch.repeats.pop(outcome.transaction_id, ()):
            waits = outcome.status in ("refused", "buffered")
            self.put(again, outcome if waits else msgspec.structs.replace(outcome, status="duplicate"))

    def put(self, owner: tuple[int, int], outcome: PushOutcome) -> None:
        request, index = owner
        answers = self.outcomes[request]
        if type(answers) is list:
            answers[index] = outcome


PartitionBatches = dict[tuple[str, str], dict[str, PartitionBatch]]
"""Batches by tenant and queue, then by partition."""
Where = dict[tuple[str, str], dict[str, list[int]]]
"""Item numbers of each partition by tenant and queue, counted over all requests."""


def by_partition(requests: Iterable[PushRequest]) -> Where:
    """Group the items of requests by partition, in the order they come."""
    found: Where = {}
    start = 0
    for request in requests:
        if not request.items:
            continue
        if len(request.items) == 1:
            [item] = request.items
            found.setdefault((request.tenant, item.queue), {}).setdefault(item.partition, []).append(start)
            start += 1
            continue
        tenant, names = request.tenant, [item.partition for item in request.items]
        queues = [item.queue for item in request.items]
        stop = start + len(names)
        if queues.count(queues[0]) < len(queues):  # otherwise, as usual, all are for one queue
            for number, queue, name in zip(range(start, stop), queues, names, strict=True):
                found.setdefault((tenant, queue), {}).setdefault(name, []).append(number)
        elif names.count(names[0]) == len(names):
            found.setdefault((tenant, queues[0]), {}).setdefault(names[0], []).extend(range(start, stop))
        else:
            numbers = found.setdefault((tenant, queues[0]), {})
            for number, name in zip(range(start, stop), names, strict=True):
                if name in numbers:
                    numbers[name].append(number)
                else:
                    numbers[name] = [number]
        start = stop
    return found


class _Columns(msgspec.Struct):
    """Columns of messages to store. `ids` are their transactionIds."""

    fragments: list[bytes]
    ids: list[str]
    keys: list[int]
    times: list[int]
    given: list[bool]
    message_ids: list[str]
    owners: list[tuple[int, int]]

    def pick(self, numbers: list[int]) -> list[list[Any]]:
        """Return the columns of the messages with these numbers."""
        first, end = numbers[0], numbers[-1] + 1
        columns = (self.fragments, self.ids, self.keys, self.times, self.given, self.message_ids, self.owners)
        if len(numbers) == 1:
            return [[column[first]] for column in columns]
        if end - first == len(numbers):
            return [column[first:end] for column in columns]
        some = itemgetter(*numbers)
        return [list(some(column)) for column in columns]


def pack_items(
    numbered: Sequence[tuple[int, PushRequest]],
    where: Where,
    by_queue: PartitionBatches,
    mint: Callable[[int], tuple[list[str], list[int], int]],
) -> list[PartitionBatch]:
    """Put each item into the batch of its partition, and return these batches. `mint` creates ids, keys and a time."""
    columns = _columns(numbered, mint)
    packed = []
    for queue, partitions in where.items():
        for name, numbers in partitions.items():
            batch = by_queue[queue][name]
            part = batch.slice
            part.fragments, part.transaction_ids, part.keys, part.id_times, part.given, *rest = columns.pick(numbers)
            batch.message_ids, batch.owners = rest
            if True in part.given and len(set(part.keys)) < len(part.keys):
                _settle_repeats(batch)
            packed.append(batch)
    return packed


def _columns(
    numbered: Sequence[tuple[int, PushRequest]], mint: Callable[[int], tuple[list[str], list[int], int]]
) -> _Columns:
    items = [item for _, request in numbered for item in request.items]
    owners = [(number, index) for number, request in numbered for index in range(len(request.items))]
    made_ids, keys, made_at = mint(len(items))
    count, ids = len(items), made_ids
    times, given = [made_at] * count, [False] * count
    given_ids = [item.transaction_id for item in items]
    if given_ids.count(None) < count:
        given = [one is not None for one in given_ids]
        ids, keys, times = _given_facts(given_ids, made_ids, keys, made_at)
    plain = [1 for _, request in numbered if not request.plain] == []
    if plain and ids is made_ids:  # the common case of producers that leave ids to the broker
        quoted = list(map(str.encode, ids))
        fragments = [PLAIN % (id, id, item.payload) for id, item in zip(quoted, items, strict=True)]
    elif plain and NO_ID_TIME not in times:  # an id with a time is a UUID, which needs no quoting
        both = zip(map(str.encode, made_ids), map(str.encode, ids), items, strict=True)
        fragments = [PLAIN % (made, id, item.payload) for made, id, item in both]
    else:
        fragments = list(map(pack, made_ids, ids, items))
    return _Columns(fragments, ids, keys, times, given, made_ids, owners)


def _settle_repeats(batch: PartitionBatch) -> None:
    """Store a repeated id only once, if the queue deduplicates. Two ids with one key get two keys."""
    part, known, again = batch.slice, dict[int, str](), list[int]()
    for index, (given, id, key) in enumerate(zip(part.given, part.transaction_ids, part.keys, strict=True)):
        same = known.get(key) if given else None
        if same == id and part.options.dedup_seconds:
            batch.repeats.setdefault(id, []).append(batch.owners[index])
            again.append(index)
        elif same is not None and same != id:
            part.keys[index] = id_key(id, salt=1)
            known[part.keys[index]] = id
        elif given:
            known[key] = id
    for index in reversed(again):
        batch.drop(index)


def pack_by_name(
    requests: Sequence[PushRequest],
    owners: Iterable[tuple[int, int]],
    options: Callable[[str, str], QueueOptions],
    mint: Callable[[int], tuple[list[str], list[int], int]],
) -> list[PartitionBatch]:
    """Pack some items of requests into batches by name, without looking their partitions up."""
    by_queue: PartitionBatches = defaultdict(dict)
    numbered: list[tuple[int, PushRequest]] = []
    origins: list[list[tuple[int, int]]] = []
    for number, mine in groupby(owners, key=itemgetter(0)):
        indexes = [index for _, index in mine]
        tenant, items = requests[number].tenant, [requests[number].items[index] for index in indexes]
        for queue, partition in {(item.queue, item.partition) for item in items}:
            if partition not in by_queue[tenant, queue]:
                part = Slice(PartitionId(0, 0), 0, options(tenant, queue), [], [], [], [], [])
                by_queue[tenant, queue][partition] = PartitionBatch((tenant, queue, partition), part)
        numbered.append((len(origins), PushRequest(tenant, items)))
        origins.append([(number, index) for index in indexes])
    batches = pack_items(numbered, by_partition(request for _, request in numbered), by_queue, mint)
    for batch in batches:
        batch.owners = [origins[number][index] for number, index in batch.owners]
        batch.repeats = {id: [origins[n][index] for n, index in again] for id, again in batch.repeats.items()}
    return batches


def _given_facts(
    given_ids: list[str | None], made_ids: list[str], made_keys: list[int], made_at: int
) -> tuple[list[str], list[int], list[int]]:
    """Return ids, keys and times of messages. Producers gave ids to some of them."""
    ids = [made if given is None else given for given, made in zip(given_ids, made_ids, strict=True)]
    keys, times = ids_facts(ids)
    if None in given_ids:
        keys = [made if given is None else key for given, made, key in zip(given_ids, made_keys, keys, strict=True)]
        times = [made_at if given is None else at for given, at in zip(given_ids, times, strict=True)]
    return ids, keys, [NO_ID_TIME if at is None else at for at in times]


def recheck_ids(batches: Iterable[PartitionBatch]) -> None:
    """Make the store look up every id, because after an unknown outcome any of them may be stored."""
    for batch in batches:
        batch.slice.given = [True] * len(batch.owners)
