"""Batches of pushes: the items of many requests, packed once into a slice for each partition, which is addressed by
name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Any

import msgspec

from fairlane.errors import LaneLocked, OutcomeUnknown
from fairlane.model.ids import PartitionId, id_key, ids_facts
from fairlane.model.message import PushItem
from fairlane.model.outcome import PushOutcome
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import PLAIN, pack
from fairlane.store.contract.values import NO_ID_TIME, Slice

PartitionName = tuple[str, str, str]
"""Tenant, queue and partition by name."""
UNDECIDED = PushOutcome(status="refused", transaction_id="")
_NO_IDS = "the store may have stored this or not, and the queue keeps no ids by which a repeat is known"


class PushRequest(msgspec.Struct):
    tenant: str
    items: Sequence[PushItem]
    special: bool = False
    """Some items have a time to deliver them, a priority, or a traceId."""
    traced: bool = False
    """Some items have a traceId, to be found by."""
    queues: set[str] | None = None
    """Those that the items name, if somebody has looked."""
    plain: bool = False
    """No item has more than its payload and perhaps its transactionId."""
    patient: bool = False
    """What meets operations in its partition is told so (`MetOperations`), and does not become one."""


class MetOperations(Exception):  # no error: whoever pushes waits and goes on with the rest
    """Some items of a patient request met operations in their partition, and are not stored: those at `indexes`."""

    def __init__(self, outcomes: list[PushOutcome], indexes: list[int]) -> None:
        super().__init__("the partition has open operations")
        self.outcomes = outcomes
        self.indexes = indexes


class Draft(msgspec.Struct, eq=False):
    """A slice in the making and whose messages it holds: the n-th is item `owners[n]` = (request, index)."""

    partition: PartitionName
    slice: Slice
    owners: list[tuple[int, int]] = []
    message_ids: list[str] = []
    repeats: dict[str, list[tuple[int, int]]] = {}
    """Given transactionId -> further items of this flush that carry it."""

    def by_request(self) -> list[Draft]:
        """What each request brought, as a draft of its own, in the order they came."""
        indexes: dict[int, list[int]] = {}
        for index, (request, _) in enumerate(self.owners):
            indexes.setdefault(request, []).append(index)
        return [self._part(some) for some in indexes.values()]

    def _part(self, indexes: list[int]) -> Draft:
        part = self.slice
        names = ("fragments", "transaction_ids", "keys", "id_times", "given")
        columns = {name: [getattr(part, name)[index] for index in indexes] for name in names}
        draft = Draft(self.partition, msgspec.structs.replace(part, **columns))
        draft.owners = [self.owners[index] for index in indexes]
        draft.message_ids = [self.message_ids[index] for index in indexes]
        draft.repeats = {id: self.repeats[id] for id in columns["transaction_ids"] if id in self.repeats}
        return draft

    def parts(self) -> list[tuple[int, int]]:
        """Where in it that begins and ends which becomes one operation: messages of one request, up to an id that comes
        again."""
        cuts = [0]
        ids: set[str] = set()
        for index, ((request, _), id) in enumerate(zip(self.owners, self.slice.transaction_ids, strict=True)):
            if request != self.owners[cuts[-1]][0] or id in ids:
                cuts.append(index)
                ids.clear()
            ids.add(id)
        return list(pairwise([*cuts, len(self.owners)]))

    def everybody(self) -> Iterable[tuple[int, int]]:
        """Owners, also of repeats."""
        return chain(self.owners, *self.repeats.values())

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
        self.abandoned = False
        """Set by whoever will not wait longer: nothing more is sent."""
        self.doubtful = False
        """Whether the store may have applied what it was last given."""
        self.partial: dict[int, list[PushOutcome]] = {}
        """What was decided of a request before it failed."""
        self.failed: list[Draft] = []
        """What was on its way when it did."""
        self.outcomes: list[list[PushOutcome] | Exception] = [[UNDECIDED] * len(request.items) for request in requests]
        self.drafts: dict[PartitionName, Draft] = {}
        self.locked: dict[PartitionName, Draft] = {}
        """Drafts whose partitions somebody else holds."""
        self.left_out: dict[int, list[int]] = {}
        """The items of each request whose partition has open operations, for which it would rather wait."""

    def is_deduplicated(self) -> bool:
        """Whether what is on its way may go into the journal as well: a repeat is known everywhere."""
        return all(draft.slice.options.dedup_seconds for draft in self.drafts.values())

    def is_patient(self, draft: Draft) -> bool:
        """Whether all whose messages these are would rather wait than have them made operations."""
        return all(self.requests[request].patient for request, _ in draft.owners)

    def leave_out(self, draft: Draft) -> None:
        """Leave the messages of a draft out: their partition has open operations."""
        del self.drafts[draft.partition]
        for request, index in draft.everybody():
            self.left_out.setdefault(request, []).append(index)

    def tell_left_out(self) -> None:
        """Tell the requests that have messages left out, except those of which others wait for a locked partition."""
        locked = {request for draft in self.locked.values() for request, _ in draft.everybody()}
        for request, indexes in self.left_out.items():
            answers = self.outcomes[request]
            if request not in locked and type(answers) is list:
                self.outcomes[request] = MetOperations(answers, sorted(indexes))

    def fail(self, error: Exception, some: Sequence[Draft] | None = None) -> None:
        """The requests with messages still on their way get the error, or those of some drafts."""
        failed = list(self.drafts.values()) if some is None else some
        for draft in failed:
            for request, _ in draft.everybody():
                answers = self.outcomes[request]
                if type(answers) is list:
                    self.partial[request] = answers
                self.outcomes[request] = error
            self.drafts.pop(draft.partition, None)
        self.failed += failed

    def put_off(self, draft: Draft) -> None:
        """Its partition is locked."""
        self.locked[draft.partition] = self.drafts.pop(draft.partition)

    def fail_locked(self) -> None:
        """Give up on what is locked. Not before all else is decided: a request may be in several drafts."""
        if self.locked:
            locked, self.locked = list(self.locked.values()), {}
            _, queue, partition = locked[0].partition
            error = f"somebody else holds partition {partition!r} of queue {queue!r} for too long; try again"
            self.fail(LaneLocked(error), locked)

    def rest(self, lost: Collection[int]) -> Flush:
        """What of these requests is undecided, as a flush of its own: whoever has this one may go on with it. A request
        gets an error if some of it may be stored, in a queue that does not know a repeat."""
        rest = Flush(self.requests)
        rest.doubtful = self.doubtful
        for number, outcome in enumerate(self.outcomes):
            known = self.partial.get(number, outcome) if number in lost else outcome
            if isinstance(known, list):
                rest.outcomes[number] = list(known)
            elif number not in lost:
                rest.outcomes[number] = known
        drafts = (*self.failed, *self.drafts.values(), *self.locked.values())
        rest.failed = [part for draft in drafts for part in draft.by_request() if part.owners[0][0] in lost]
        for part in rest.failed:
            if self.doubtful and not part.slice.options.dedup_seconds:
                rest.refuse(part, OutcomeUnknown(_NO_IDS))
        return rest

    def undecided(self) -> list[tuple[int, int]]:
        """Items of which nothing was decided, and that are in no draft."""
        drafted = {owner for draft in self.failed for owner in draft.everybody()}
        return [
            (number, index)
            for number, outcomes in enumerate(self.outcomes)
            for index, outcome in enumerate(outcomes if isinstance(outcomes, list) else ())
            if outcome is UNDECIDED and (number, index) not in drafted
        ]

    def refuse(self, draft: Draft, error: Exception) -> None:
        """All whose messages these are get the error."""
        for request, _ in draft.everybody():
            self.outcomes[request] = error

    def answer(self, draft: Draft, where: tuple[int, int], outcome: PushOutcome) -> None:
        """Tell all messages from one to below another what became of them, and take them out of the draft."""
        for index in reversed(range(*where)):  # from the end, so that dropping one leaves the others in their places
            id = draft.slice.transaction_ids[index]
            self.settle(draft, draft.drop(index), msgspec.structs.replace(outcome, transaction_id=id))

    def settle(self, draft: Draft, owner: tuple[int, int], outcome: PushOutcome) -> None:
        self.put(owner, outcome)
        for again in draft.repeats.pop(outcome.transaction_id, ()):
            self.put(again, outcome if outcome.status in ("refused", "buffered") else _as_duplicate(outcome))

    def put(self, owner: tuple[int, int], outcome: PushOutcome) -> None:
        request, index = owner
        answers = self.outcomes[request]
        if type(answers) is list:
            answers[index] = outcome


def _as_duplicate(outcome: PushOutcome) -> PushOutcome:
    return msgspec.structs.replace(outcome, status="duplicate")


Drafts = dict[tuple[str, str], dict[str, Draft]]
"""By tenant and queue, then by partition."""


Where = dict[tuple[str, str], dict[str, list[int]]]
"""Which items belong to each partition, by tenant and queue: their numbers, counted over all requests."""


def by_partition(requests: Iterable[PushRequest]) -> Where:
    """Where the items of requests belong, in the order they come."""
    found: Where = {}
    start = 0
    for request in requests:
        if not request.items:
            continue
        if len(request.items) == 1:
            [item] = request.items
            queue_key = request.tenant, item.queue
            if queue_key not in found:
                found[queue_key] = {}
            found[queue_key].setdefault(item.partition, []).append(start)
            start += 1
            continue
        tenant, names = request.tenant, [item.partition for item in request.items]
        queues = [item.queue for item in request.items]
        stop = start + len(names)
        if queues.count(queues[0]) < len(queues):  # else, as nearly always, all are of one queue
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
        """Those of some messages."""
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
    by_queue: Drafts,
    mint: Callable[[int], tuple[list[str], list[int], int]],
) -> list[Draft]:
    """Put each item of a flush's requests, which come with their numbers in it, into its partition's draft; those that
    got some. `where` are the items, counted over all requests. `mint` makes ids, with their facts: their keys, and
    their time."""
    columns = _columns(numbered, mint)
    packed = []
    for queue, partitions in where.items():
        for name, numbers in partitions.items():
            draft = by_queue[queue][name]
            part = draft.slice
            part.fragments, part.transaction_ids, part.keys, part.id_times, part.given, *rest = columns.pick(numbers)
            draft.message_ids, draft.owners = rest
            if True in part.given and len(set(part.keys)) < len(part.keys):
                _settle_repeats(draft)
            packed.append(draft)
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
    if plain and ids is made_ids:  # as of producers that leave ids to the broker
        quoted = list(map(str.encode, ids))
        fragments = [PLAIN % (id, id, item.payload) for id, item in zip(quoted, items, strict=True)]
    elif plain and NO_ID_TIME not in times:  # an id that holds a time is a UUID, which needs no quoting
        both = zip(map(str.encode, made_ids), map(str.encode, ids), items, strict=True)
        fragments = [PLAIN % (made, id, item.payload) for made, id, item in both]
    else:
        fragments = list(map(pack, made_ids, ids, items))
    return _Columns(fragments, ids, keys, times, given, made_ids, owners)


def _settle_repeats(draft: Draft) -> None:
    """An id may come twice in one flush: it is stored once, where ids are known. Two ids with one key get two."""
    part, known, again = draft.slice, dict[int, str](), list[int]()
    for index, (given, id, key) in enumerate(zip(part.given, part.transaction_ids, part.keys, strict=True)):
        same = known.get(key) if given else None
        if same == id and part.options.dedup_seconds:
            draft.repeats.setdefault(id, []).append(draft.owners[index])
            again.append(index)
        elif same is not None and same != id:
            part.keys[index] = id_key(id, salt=1)
            known[part.keys[index]] = id
        elif given:
            known[key] = id
    for index in reversed(again):
        draft.drop(index)


def pack_by_name(
    requests: Sequence[PushRequest],
    owners: Iterable[tuple[int, int]],
    options: Callable[[str, str], QueueOptions],
    mint: Callable[[int], tuple[list[str], list[int], int]],
) -> list[Draft]:
    """Some items of requests as drafts whose partitions nobody has to know."""
    by_queue: Drafts = defaultdict(dict)
    numbered: list[tuple[int, PushRequest]] = []
    origins: list[list[tuple[int, int]]] = []
    for number, mine in groupby(owners, key=itemgetter(0)):
        indexes = [index for _, index in mine]
        tenant, items = requests[number].tenant, [requests[number].items[index] for index in indexes]
        for queue, partition in {(item.queue, item.partition) for item in items}:
            if partition not in by_queue[tenant, queue]:
                part = Slice(PartitionId(0, 0), 0, options(tenant, queue), [], [], [], [], [])
                by_queue[tenant, queue][partition] = Draft((tenant, queue, partition), part)
        numbered.append((len(origins), PushRequest(tenant, items)))
        origins.append([(number, index) for index in indexes])
    drafts = pack_items(numbered, by_partition(request for _, request in numbered), by_queue, mint)
    for draft in drafts:
        draft.owners = [origins[number][index] for number, index in draft.owners]
        draft.repeats = {id: [origins[n][index] for n, index in again] for id, again in draft.repeats.items()}
    return drafts


def _given_facts(
    given_ids: list[str | None], made_ids: list[str], made_keys: list[int], made_at: int
) -> tuple[list[str], list[int], list[int]]:
    """The ids of messages, of which some were given, their keys and their times."""
    ids = [made if given is None else given for given, made in zip(given_ids, made_ids, strict=True)]
    keys, times = ids_facts(ids)
    if None in given_ids:
        keys = [made if given is None else key for given, made, key in zip(given_ids, made_keys, keys, strict=True)]
        times = [made_at if given is None else at for given, at in zip(given_ids, times, strict=True)]
    return ids, keys, [NO_ID_TIME if at is None else at for at in times]


def doubt(drafts: Iterable[Draft]) -> None:
    """After an unknown outcome any of these messages may be stored, so that each must be looked up."""
    for draft in drafts:
        draft.slice.given = [True] * len(draft.owners)
