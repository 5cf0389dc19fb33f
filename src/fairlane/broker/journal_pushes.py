"""Pushes into the journal, when the store does not take them: which of their messages, and under which ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.journal_backlogs import JournalBacklogs
from fairlane.broker.journal_codec import push_backlog, push_entry
from fairlane.broker.push_batch import UNDECIDED, Flush, PushRequest
from fairlane.errors import FairlaneError, InvalidRequest, OutcomeUnknown, StoreUnavailable
from fairlane.model.ids import Uuid7
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.outcome import OperationReason, PushOutcome
from fairlane.store.contract.journal import Backlog, NewEntry

PushAnswers = list[list[PushOutcome] | Exception]


class Share(NamedTuple):
    """One item of one request; the id under which it may be in the store already."""

    request: int
    item: int
    transaction_id: str | None
    doubtful: bool = False


class _Part(NamedTuple):
    """The share of one request in one backlog."""

    request: int
    backlog: Backlog
    shares: list[Share]
    ids: list[str]
    operation_id: UUID


class JournalPushes:
    def __init__(self, backlogs: JournalBacklogs, catalogue: Catalogue, ids: Uuid7) -> None:
        self._backlogs = backlogs
        self._catalogue = catalogue
        self._ids = ids

    async def append(
        self, requests: Sequence[PushRequest], shares: Sequence[Share], answers: PushAnswers, reason: OperationReason
    ) -> None:
        """Put these items into the journal and say so, or why not, in `answers`."""
        by_request = _by_backlog(requests, shares)
        entries: list[NewEntry] = []
        added: list[_Part] = []
        room = self._backlogs.journal.room()
        for number, backlogs in by_request.items():
            refusal = self._refusal(backlogs)
            if refusal is None:
                parts = [self._part(requests[number], number, backlog, some) for backlog, some in backlogs.items()]
                size = sum(entry.size for _, entry in parts)
                if size <= room:
                    room -= size
                    added += [one for one, _ in parts]
                    entries += [entry for _, entry in parts]
                    continue
                refusal = self._backlogs.full()
            answers[number] = _refused(refusal, [share for some in backlogs.values() for share in some])
        if entries:
            self._answer(added, await self._backlogs.append(entries), answers, reason)

    def _part(self, request: PushRequest, number: int, backlog: Backlog, some: list[Share]) -> tuple[_Part, NewEntry]:
        items = [request.items[share.item] for share in some]
        made = self._ids.many(len(items))[0]
        ids = [
            share.transaction_id or item.transaction_id or anew
            for share, item, anew in zip(some, items, made, strict=True)
        ]
        operation_id = UUID(self._ids())
        entry = push_entry(backlog, list(zip(items, ids, strict=True)), operation_id)
        return _Part(number, backlog, some, ids, operation_id), entry

    def _answer(
        self, added: list[_Part], failure: FairlaneError | None, answers: PushAnswers, reason: OperationReason
    ) -> None:
        wait = self._backlogs.estimate()
        for number, backlog, some, ids, operation_id in added:
            outcomes = answers[number]
            if not isinstance(outcomes, list):
                continue
            if failure is not None:
                answers[number] = _refused(failure, some)
                continue
            position = max(1, self._backlogs.count(backlog))
            for share, transaction_id in zip(some, ids, strict=True):
                outcomes[share.item] = PushOutcome(
                    "buffered",
                    transaction_id,
                    operation_id=str(operation_id),
                    queue_position=position,
                    reason=reason,
                    estimated_wait=wait,
                    durability="journal",
                )

    def _refusal(self, backlogs: dict[Backlog, list[Share]]) -> FairlaneError | None:
        """What the store would refuse, as far as it is known without it."""
        for backlog in backlogs:
            queue = self._catalogue.recall(backlog.tenant, backlog.name)
            if queue is not None and queue.options.encryption_enabled and not self._backlogs.journal.sealed:
                return StoreUnavailable(
                    f"queue {backlog.name!r} is encrypted, and this broker has no encryption key to keep its messages "
                    "with until the store takes them"
                )
            if queue is not None and queue.options.ordering == "fifo" and backlog.partition != DEFAULT_PARTITION:
                return InvalidRequest(f"queue {backlog.name!r} is fifo: its only partition is {DEFAULT_PARTITION!r}")
        return None


def _by_backlog(requests: Sequence[PushRequest], shares: Sequence[Share]) -> dict[int, dict[Backlog, list[Share]]]:
    """By request and backlog. Mostly many in a row are of the same, which is then looked up once."""
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
    return found


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


def _refused(error: FairlaneError, shares: Sequence[Share]) -> FairlaneError:
    """What may be stored already was not refused."""
    if any(share.doubtful for share in shares) and not isinstance(error, InvalidRequest):
        return OutcomeUnknown(f"the store may have stored this or not, and the journal cannot take it: {error}")
    return error
