"""The appender: puts pushes and acks into the journal, and says so to their callers."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from fairlane.broker.ack import AckRequest
from fairlane.broker.ack_plan import lanes_of
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.patience import Patience
from fairlane.broker.push_batch import Draft, Flush, PushRequest, pack_by_name
from fairlane.errors import FairlaneError, InvalidRequest, JournalFull, OutcomeUnknown, StoreUnavailable
from fairlane.model.ids import Uuid7
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.operation import ack_payload, push_payload
from fairlane.model.outcome import AckItem, AckOutcome, OperationReason, Outcomes, PushOutcome
from fairlane.model.queue import QueueOptions
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.rate import Rate
from fairlane.store.contract.journal import Backlog, NewEntry

if TYPE_CHECKING:
    from fairlane.store.journal.journal import Journal

AckAnswers = list[Sequence[AckOutcome] | Exception]

_UNFENCED = (
    "a nack without a lease cannot wait in the journal, for it could count twice; say it with the lease, or try again"
)
_KEEPS_ALL = QueueOptions(dedup_seconds=0)
"""Of a queue that nobody knows: whether an id that comes twice is a duplicate shows when it is stored."""


def push_backlog(tenant: str, item: PushItem) -> Backlog:
    return Backlog("push", tenant, item.queue, item.partition)


def push_backlogs(requests: Sequence[PushRequest]) -> frozenset[Backlog]:
    return frozenset(push_backlog(request.tenant, item) for request in requests for item in request.items)


def ack_backlog(request: AckRequest, item: AckItem) -> Backlog:
    return Backlog("ack", request.tenant, request.group, str(item.partition))


def ack_backlogs(requests: Sequence[AckRequest]) -> frozenset[Backlog]:
    return frozenset(ack_backlog(request, item) for request in requests for item in request.items)


def unfenced(request: AckRequest) -> bool:
    """Whether it has a nack without a lease, which counts twice when it is applied twice."""
    return any(item.lease is None and item.status not in ("completed", "success") for item in request.items)


class Appender:
    def __init__(
        self, journal: Journal, catalogue: Catalogue, ids: Uuid7, patience: Patience, rate: Rate, news: asyncio.Event
    ) -> None:
        """`rate` is of messages that leave the journal; `news` is set when there may be something to drain."""
        self.journal = journal
        self.version = journal.version
        self.empty_at: int | None = None
        """The version of the journal at which it was seen empty: while it has no other, everything goes straight."""
        self._catalogue = catalogue
        self._ids = ids
        self._patience = patience
        self._rate = rate
        self._news = news
        self._appending: Counter[Backlog] = Counter()
        """The backlogs of entries that are being appended."""
        self._shortest: int | None = None
        """The fewest entries since the store is there; None while it is away, or nothing may leave the journal."""

    def is_empty(self) -> bool:
        """Look whether the journal is, for now and as long as nobody changes it."""
        version = self.version()
        if version != self.empty_at:
            self.empty_at = None if self._appending or self.journal.state().entries else version
        return self.empty_at is not None

    def following(self, backlogs: Iterable[Backlog]) -> set[Backlog]:
        """Those that have entries in the journal, or are about to."""
        some = set(backlogs)
        return self.journal.holds(some) | (some & self._appending.keys())

    def forget_growth(self) -> None:
        """Note that nothing can leave the journal now, so that it has to grow."""
        self._shortest = None

    def growth(self) -> tuple[int, int]:
        """Return the growth of the journal while the store is available, and its number of entries."""
        entries = self.journal.state().entries
        self._shortest = entries if self._shortest is None else min(self._shortest, entries)
        return entries - self._shortest, entries

    async def push(self, flush: Flush, owners: Sequence[tuple[int, int]], reason: OperationReason) -> None:
        """Put these items of a flush into the journal, and the drafts that failed in it; say so, or why not."""
        drafts = [*flush.failed, *pack_by_name(flush.requests, owners, self._options, self._ids.many)]
        by_request: dict[int, list[Draft]] = defaultdict(list)
        for draft in drafts:
            for part in draft.by_request():
                by_request[part.owners[0][0]].append(part)
        added: list[tuple[Draft, tuple[int, int], NewEntry]] = []
        room = self.journal.room()
        for number, mine in by_request.items():
            entries = [(part, where, self._push_entry(part, *where)) for part in mine for where in part.parts()]
            size = sum(entry.size for _, _, entry in entries)
            error = self._refusal(mine) or (self._full() if size > room else None)
            if isinstance(flush.outcomes[number], list) and error is None:
                room -= size
                added += entries
            elif error is not None:
                for part in mine:
                    flush.refuse(part, _refused(error, flush))
        counts = await self._append([entry for _, _, entry in added])
        outcome = PushOutcome("buffered", "", reason=reason, estimated_wait=self._estimate(), durability="journal")
        for part, where, entry in reversed(added):
            if isinstance(counts, FairlaneError):
                flush.refuse(part, _refused(counts, flush))
                continue
            outcome.operation_id, outcome.queue_position = str(entry.id), max(1, counts.get(entry.backlog, 1))
            flush.answer(part, where, outcome)

    def _options(self, tenant: str, queue: str) -> QueueOptions:
        return self._catalogue.recall_options(tenant, queue) or _KEEPS_ALL

    def _push_entry(self, part: Draft, start: int, end: int) -> NewEntry:
        # Ids are looked up when it is applied, whoever made them: it may be that it was applied before.
        payload = push_payload(part.slice.fragments[start:end], doubt=True)
        return NewEntry(Backlog("push", *part.partition), end - start, payload, UUID(self._ids()))

    def _refusal(self, mine: Sequence[Draft]) -> FairlaneError | None:
        """What the store would refuse, as far as it is known without it."""
        for part in mine:
            tenant, name, partition = part.partition
            options = self._catalogue.recall_options(tenant, name)
            if options is not None and options.encryption_enabled and not self.journal.sealed:
                return StoreUnavailable(
                    f"queue {name!r} is encrypted, and this broker has no encryption key to keep its messages "
                    "with until the store takes them"
                )
            if options is not None and options.ordering == "fifo" and partition != DEFAULT_PARTITION:
                return InvalidRequest(f"queue {name!r} is fifo: its only partition is {DEFAULT_PARTITION!r}")
        return None

    def _full(self) -> JournalFull:
        state = self.journal.state()
        return JournalFull(
            f"the journal is full: {state.bytes} of {state.bytes_max} bytes; it empties when the store is back"
        )

    async def _append(self, entries: Sequence[NewEntry]) -> dict[Backlog, int] | FairlaneError:
        """Append entries, and hold their backlogs from now on; how many are in each, or why they could not be. A caller
        that gives up does not let go of them: they are held until it is known whether they are in the journal."""
        if not entries:
            return {}
        backlogs = Counter(entry.backlog for entry in entries)
        self.empty_at = None
        self._appending += backlogs
        writing = asyncio.ensure_future(self.journal.append(entries, self._patience.unsettled()))
        writing.add_done_callback(lambda _: self._written(backlogs))
        try:
            return await asyncio.shield(writing)
        except FairlaneError as error:
            return error

    def _written(self, backlogs: Counter[Backlog]) -> None:
        self._appending -= backlogs
        self._news.set()

    async def acks(self, requests: Sequence[AckRequest], error: FairlaneError, reason: OperationReason) -> AckAnswers:
        """What the journal holds may be applied twice. An ack changes nothing then, and a nack neither while its lease
        fences it; a nack without a lease would count twice, so that it is refused: with the `error` if that says that
        it may be applied already."""
        answers: AckAnswers = []
        added: list[tuple[int, Sequence[int], NewEntry]] = []
        doubtful, room = isinstance(error, OutcomeUnknown), self.journal.room()
        for number, request in enumerate(requests):
            entries = [
                (number, indexes, self._ack_entry(request, indexes)) for indexes in lanes_of(request.items).values()
            ]
            size = sum(entry.size for _, _, entry in entries)
            if unfenced(request):
                answers.append(error if doubtful else StoreUnavailable(_UNFENCED))
            elif size > room:
                answers.append(error if doubtful else self._full())
            else:
                room -= size
                answers.append(Outcomes(request.items))
                added += entries
        counts = await self._append([entry for _, _, entry in added])
        wait = self._estimate()
        for number, indexes, entry in added:
            answer = answers[number]
            if isinstance(counts, FairlaneError):
                answers[number] = counts
            elif isinstance(answer, Outcomes):
                outcome = AckOutcome(True, "", operation_id=str(entry.id), durability="journal", reason=reason)
                outcome.queue_position, outcome.estimated_wait = max(1, counts.get(entry.backlog, 1)), wait
                answer.add(indexes, outcome)
        return answers

    def _ack_entry(self, request: AckRequest, indexes: Sequence[int]) -> NewEntry:
        items = [request.items[index] for index in indexes]
        return NewEntry(
            ack_backlog(request, items[0]), len(items), ack_payload(request.group, items), UUID(self._ids())
        )

    def _estimate(self) -> float:
        """Seconds that what comes now will wait: as long as the oldest has, or as what is there takes to drain."""
        state = self.journal.state()
        waited = 0.0 if state.oldest_at is None else (wall_clock() - state.oldest_at) / 1e6
        return round(max(1.0, waited, self._rate.seconds_for(state.messages) or 0.0), 2)


def _refused(error: FairlaneError, flush: Flush) -> FairlaneError:
    """What may be stored already was not refused."""
    if flush.doubtful and not isinstance(error, InvalidRequest):
        return OutcomeUnknown(f"the store may have stored this or not, and the journal cannot take it: {error}")
    return error
