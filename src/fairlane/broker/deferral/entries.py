"""Entries of the journal: which items of pushes and acks become entries, under which ids, and how they are written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from fairlane.broker.ack import AckRequest
from fairlane.broker.ack_plan import lanes_of
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.push_batch import UNDECIDED, Flush, PushRequest
from fairlane.errors import FairlaneError, InvalidRequest, OutcomeUnknown
from fairlane.model.ids import PartitionId, Uuid7
from fairlane.model.message import PushItem
from fairlane.model.operation import PRIORITIES, Operation, ack_payload, ack_result, push_result, read_ack
from fairlane.model.outcome import AckItem, AckOutcome, PushOutcome
from fairlane.store.contract.journal import Backlog, Entry, NewEntry
from fairlane.store.contract.operations import AppliedOperation

PushAnswers = list[list[PushOutcome] | Exception]
AckAnswers = list[Sequence[AckOutcome] | Exception]


class _Message(msgspec.Struct, array_like=True):
    payload: bytes
    transaction_id: str
    trace_id: str | None
    type: str | None
    headers: dict[str, str] | None


_encode = msgspec.msgpack.Encoder().encode
_decode_messages = msgspec.msgpack.Decoder(list[_Message]).decode


def push_backlog(tenant: str, item: PushItem) -> Backlog:
    return Backlog("push", tenant, item.queue, item.partition)


def push_backlogs(requests: Sequence[PushRequest]) -> frozenset[Backlog]:
    return frozenset(push_backlog(request.tenant, item) for request in requests for item in request.items)


def ack_backlog(request: AckRequest, item: AckItem) -> Backlog:
    return Backlog("ack", request.tenant, request.group, str(item.partition))


def ack_backlogs(requests: Sequence[AckRequest]) -> frozenset[Backlog]:
    return frozenset(ack_backlog(request, item) for request in requests for item in request.items)


def push_entry(backlog: Backlog, messages: Sequence[tuple[PushItem, str]], id: UUID) -> NewEntry:
    """Messages of one partition, each with its transactionId."""
    rows = [
        _Message(bytes(item.payload), transaction_id, item.trace_id, item.type, item.headers)
        for item, transaction_id in messages
    ]
    return NewEntry(backlog, len(rows), _encode(rows), id)


def push_request(entry: Entry, body: bytes) -> PushRequest:
    queue, partition = entry.backlog.name, entry.backlog.partition
    items = [
        PushItem(queue=queue, partition=partition, **msgspec.structs.asdict(message))
        for message in _decode_messages(body)
    ]
    return PushRequest(entry.backlog.tenant, items, traced=True, operation_id=entry.id)


def ack_entries(request: AckRequest, ids: Uuid7) -> dict[NewEntry, Sequence[int]]:
    """One for each lane and lease, as operations are, and the indexes of its items."""
    items = request.items
    found = {}
    for indexes in lanes_of(items).values():
        payload = ack_payload(request.group, [items[index] for index in indexes])
        found[NewEntry(ack_backlog(request, items[indexes[0]]), len(indexes), payload, UUID(ids()))] = indexes
    return found


def ack_request(entry: Entry, body: bytes) -> AckRequest:
    return AckRequest(entry.backlog.tenant, entry.backlog.name, read_ack(body).items, entry.id)


def unfenced(request: AckRequest) -> bool:
    """Whether it has a nack without a lease, which counts twice when it is applied twice."""
    return any(item.lease is None and item.status not in ("completed", "success") for item in request.items)


class Share(NamedTuple):
    """One item of one request; the id under which it may be in the store already."""

    request: int
    item: int
    transaction_id: str | None = None
    doubtful: bool = False


class Part(NamedTuple):
    """The share of one request in one backlog, and its entry."""

    request: int
    shares: list[Share]
    ids: list[str]
    entry: NewEntry


def parts(requests: Sequence[PushRequest], shares: Sequence[Share], ids: Uuid7) -> dict[int, list[Part]]:
    """By request. Mostly many items in a row are of the same backlog, which is then looked up once."""
    found: dict[int, dict[Backlog, list[Share]]] = defaultdict(lambda: defaultdict(list))
    last: tuple[int, str, str] | None = None
    mine: list[Share] = []
    for share in shares:
        request = requests[share.request]
        item = request.items[share.item]
        key = (share.request, item.queue, item.partition)
        if key != last:
            last, mine = key, found[share.request][push_backlog(request.tenant, item)]
        mine.append(share)
    return {
        number: [_part(requests[number], backlog, some, ids) for backlog, some in backlogs.items()]
        for number, backlogs in found.items()
    }


def _part(request: PushRequest, backlog: Backlog, some: list[Share], ids: Uuid7) -> Part:
    items = [request.items[share.item] for share in some]
    made = ids.many(len(items))[0]
    known = [
        share.transaction_id or item.transaction_id or anew for share, item, anew in zip(some, items, made, strict=True)
    ]
    entry = push_entry(backlog, list(zip(items, known, strict=True)), UUID(ids()))
    return Part(some[0].request, some, known, entry)


def is_deduplicated(flush: Flush) -> bool:
    """Whether what is on its way may go into the journal as well: a repeat is known everywhere."""
    return all(draft.slice.options.dedup_seconds for draft in flush.drafts.values())


def unsettled(flush: Flush, lost: Sequence[int], answers: PushAnswers) -> list[Share]:
    """The items of the lost requests of which nothing is known. Those whose queue does not deduplicate get the error
    if they may be stored: from the journal they could be stored a second time."""
    ids = _ids(flush)
    shares: list[Share] = []
    for number in lost:
        outcome = answers[number]
        decided = list(flush.partial.get(number) or (outcome if isinstance(outcome, list) else ()))
        decided = decided or [UNDECIDED] * len(flush.requests[number].items)
        mine = []
        for index, one in enumerate(decided):
            if one is UNDECIDED:
                known, window = ids.get((number, index), (None, 1))
                doubtful = flush.doubtful and known is not None
                mine.append(Share(number, index, known, doubtful))
                if doubtful and window == 0:
                    answers[number] = OutcomeUnknown(
                        "the store may have stored this or not, and the queue keeps no ids by which a repeat is known"
                    )
                    break
        else:
            answers[number] = decided
            shares += mine
    return shares


def _ids(flush: Flush) -> dict[tuple[int, int], tuple[str | None, int]]:
    """The id under which each item was sent, and for how long its queue knows ids."""
    ids: dict[tuple[int, int], tuple[str | None, int]] = {}
    for draft in (*flush.failed, *flush.drafts.values(), *flush.locked.values()):
        window = draft.slice.options.dedup_seconds
        for owner, transaction_id in zip(draft.owners, draft.slice.transaction_ids, strict=True):
            ids[owner] = (transaction_id, window)
        for repeated, owners in draft.repeats.items():
            ids.update((owner, (repeated, window)) for owner in owners)
    return ids


def refused(error: FairlaneError, shares: Sequence[Share]) -> FairlaneError:
    """What may be stored already was not refused."""
    if any(share.doubtful for share in shares) and not isinstance(error, InvalidRequest):
        return OutcomeUnknown(f"the store may have stored this or not, and the journal cannot take it: {error}")
    return error


def applied_operation(
    entry: Entry, outcomes: Sequence[PushOutcome] | Sequence[AckOutcome], catalogue: Catalogue
) -> AppliedOperation:
    """What the store is told of an entry that was applied."""
    where, names = _names(entry, catalogue)
    result = push_result(outcomes) if entry.backlog.kind == "push" else ack_result(outcomes)  # type: ignore[arg-type]
    if entry.backlog.kind == "push":
        stored = [one.partition for one in outcomes if isinstance(one, PushOutcome) and one.partition]
        where = stored[0] if stored else where
    return AppliedOperation(
        id=entry.id, partition=where, messages=entry.messages, created_at=entry.created_at, result=result, **names
    )


def operation(entry: Entry, catalogue: Catalogue) -> Operation:
    """An entry as people see it."""
    where, names = _names(entry, catalogue)
    return Operation(
        id=entry.id,
        status="pending" if entry.error is None else "failed",
        priority=PRIORITIES[names["type"]],
        partition=where,
        sequence=entry.seq,
        size=len(entry.body),
        messages=entry.messages,
        created_at=entry.created_at,
        error=entry.error,
        durability="journal",
        **names,
    )


def _names(entry: Entry, catalogue: Catalogue) -> tuple[PartitionId, dict[str, Any]]:
    """The partition of an entry as far as it is known, and its names."""
    kind, tenant, name, partition = entry.backlog
    if kind == "push":
        names = {"type": "PUSH", "tenant": tenant, "queue": name, "partition_name": partition, "group": ""}
        return PartitionId(0, 0), names
    where = PartitionId.parse(partition)
    queue, label = catalogue.known_names(where)
    names = {"type": "ACK_BATCH", "tenant": tenant, "queue": queue or "", "partition_name": label or partition}
    return where, names | {"group": name}
