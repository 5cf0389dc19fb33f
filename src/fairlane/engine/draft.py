"""What a flush of pushes is made of: a slice in the making for each partition, and whose messages it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

import msgspec

from fairlane.model.ids import id_facts, id_key, ids_facts
from fairlane.model.message import PushItem
from fairlane.model.outcome import PushOutcome
from fairlane.model.segment import pack, pack_minted
from fairlane.store.values import NO_ID_TIME, Slice

Address = tuple[str, str, str]
"""Tenant, queue and partition by name."""
UNDECIDED = PushOutcome(status="refused", transaction_id="")


class PushRequest(msgspec.Struct):
    tenant: str
    items: Sequence[PushItem]
    special: bool = False
    """Some items have a time to deliver them, a priority, or a traceId."""
    traced: bool = False
    """Some items have a traceId, to be found by."""
    queues: set[str] | None = None
    """Those that the items name, if somebody has looked."""


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
    """Requests on their way into the store. `outcomes` has a list for each request, or its error.

    `in_order`: a part that does not fit holds back what comes behind it in its partition. `dedup_least` is how many
    seconds ids are looked back for at least, in queues that do so at all."""

    def __init__(self, requests: Sequence[PushRequest], *, in_order: bool = False, dedup_least: int = 0) -> None:
        self.requests = requests
        self.in_order = in_order
        self.dedup_least = dedup_least
        self.abandoned = False
        """Set by whoever will not wait longer: nothing more is sent."""
        self.doubtful = False
        """Whether the store may have applied what it was last given."""
        self.partial: dict[int, list[PushOutcome]] = {}
        """What was decided of a request before it failed."""
        self.failed: list[Draft] = []
        """What was on its way when it did."""
        self.outcomes: list[list[PushOutcome] | Exception] = [[UNDECIDED] * len(request.items) for request in requests]
        self.drafts: dict[Address, Draft] = {}

    def fail(self, error: Exception) -> None:
        """The requests with messages still on their way get the error."""
        for draft in self.drafts.values():
            for request, _ in draft.owners:
                answers = self.outcomes[request]
                if type(answers) is list:
                    self.partial[request] = answers
                self.outcomes[request] = error
        self.failed += self.drafts.values()
        self.drafts.clear()

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


def pack_items(
    number: int,
    request: PushRequest,
    lanes: dict[tuple[str, str], dict[str, Draft]],
    made: tuple[list[str], list[int], int],
) -> None:
    """Put each item of the flush's request `number` into its lane's draft. `made` are ids for them, with their facts:
    their keys, and their time."""
    given_ids = [item.transaction_id for item in request.items]
    if not given_ids:
        return
    if given_ids.count(None) == len(given_ids):
        _pack_minted(number, request, lanes, made)
    else:
        _pack_given(number, request, lanes, made, given_ids)


def _pack_minted(
    number: int,
    request: PushRequest,
    lanes: dict[tuple[str, str], dict[str, Draft]],
    made: tuple[list[str], list[int], int],
) -> None:
    """Items without ids of their own cannot be anybody's repeats."""
    items, tenant = request.items, request.tenant
    ids, keys, made_at = made
    rows = zip(
        pack_minted(ids, items),
        ids,
        keys,
        repeat(made_at),
        repeat(False),
        ids,
        zip(repeat(number), range(len(items)), strict=False),
        strict=False,  # what repeats has no end
    )
    queues = [item.queue for item in items]
    labels = [item.partition for item in items]
    if labels.count(labels[0]) == len(labels) and queues.count(queues[0]) == len(queues):
        lanes[tenant, queues[0]][labels[0]].rows += rows
        return
    queue: str | None = None
    drafts: dict[str, Draft] = {}
    for name, label, row in zip(queues, labels, rows, strict=True):
        if name is not queue:  # neighbours are mostly of one queue
            queue = name
            drafts = lanes[tenant, queue]
        drafts[label].rows.append(row)


def _pack_given(
    number: int,
    request: PushRequest,
    lanes: dict[tuple[str, str], dict[str, Draft]],
    made: tuple[list[str], list[int], int],
    given_ids: list[str | None],
) -> None:
    """Items of which some bring their ids: an id may come twice in one flush."""
    items, tenant = request.items, request.tenant
    message_ids, keys, made_at = made
    queue: str | None = None
    drafts: dict[str, Draft] = {}
    index = -1
    for item, given_id, message_id, (key, id_time) in zip(
        items, given_ids, message_ids, _facts(given_ids), strict=True
    ):
        index += 1
        if item.queue is not queue:  # neighbours are mostly of one queue
            queue = item.queue
            drafts = lanes[tenant, queue]
        draft = drafts[item.partition]
        if given_id is None:
            fragment = pack(message_id, message_id, item)
            draft.rows.append((fragment, message_id, keys[index], made_at, False, message_id, (number, index)))
            continue
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


def _facts(given_ids: list[str | None]) -> Sequence[tuple[int, int | None]]:
    """`id_facts` of each id, of (0, None) where none was given."""
    if None in given_ids:
        return [(0, None) if given is None else id_facts(given) for given in given_ids]
    return ids_facts(given_ids)  # type: ignore[arg-type]


def doubt(drafts: Iterable[Draft]) -> None:
    """After an unknown outcome any of these messages may be stored, so that each must be looked up."""
    for draft in drafts:
        draft.slice.given = [True] * len(draft.owners)
