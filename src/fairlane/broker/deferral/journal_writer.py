"""The journal writer: appends pushes and acks to the journal, and answers their callers."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from fairlane.broker.ack import AckRequest
from fairlane.broker.ack_plan import lanes_of
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.store_timeout import StoreTimeout
from fairlane.broker.push_batch import PartitionBatch, PushFlight, PushRequest, pack_by_name
from fairlane.errors import FairlaneError, InvalidRequest, JournalFull, OutcomeUnknown, StoreUnavailable
from fairlane.model.ids import Uuid7
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.operation import ack_payload, push_payload
from fairlane.model.outcome import AckItem, AckOutcome, OperationReason, Outcomes, PushOutcome
from fairlane.model.queue import QueueOptions
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.rate import RateEstimate
from fairlane.store.contract.journal import Backlog, NewEntry

if TYPE_CHECKING:
    from fairlane.store.journal.journal import Journal

AckAnswers = list[Sequence[AckOutcome] | Exception]

_UNFENCED = (
    "a nack without a lease cannot wait in the journal, where it could count twice; send its lease, or try again"
)
_KEEPS_ALL = QueueOptions(dedup_seconds=0)
"""Options of an unknown queue: duplicates are detected only when the messages are stored."""


def push_backlog(tenant: str, item: PushItem) -> Backlog:
    return Backlog("push", tenant, item.queue, item.partition)


def push_backlogs(requests: Sequence[PushRequest]) -> frozenset[Backlog]:
    return frozenset(push_backlog(request.tenant, item) for request in requests for item in request.items)


def ack_backlog(request: AckRequest, item: AckItem) -> Backlog:
    return Backlog("ack", request.tenant, request.group, str(item.partition))


def ack_backlogs(requests: Sequence[AckRequest]) -> frozenset[Backlog]:
    return frozenset(ack_backlog(request, item) for request in requests for item in request.items)


def unfenced(request: AckRequest) -> bool:
    """Return True if a request has a nack without a lease, which would count twice if it is applied twice."""
    return any(item.lease is None and item.status not in ("completed", "success") for item in request.items)


class JournalWriter:
    def __init__(
        self,
        journal: Journal,
        catalogue: Catalogue,
        ids: Uuid7,
        timeout: StoreTimeout,
        rate: RateEstimate,
        journal_changed: asyncio.Event,
    ) -> None:
        """Create the writer.

        `rate` is the rate of messages that leave the journal. `journal_changed` is set when there may be something to
        drain.
        """
        self.journal = journal
        self.version = journal.version
        self.empty_at: int | None = None
        """Version of the journal at which it was empty. While the version stays the same, everything goes to the
        store."""
        self._catalogue = catalogue
        self._ids = ids
        self._timeout = timeout
        self._rate = rate
        self._journal_changed = journal_changed
        self._appending: Counter[Backlog] = Counter()
        """Backlogs of entries that are being appended."""
        self._shortest: int | None = None
        """Fewest entries since the store is available. None while it is not, or while nothing may leave the journal."""

    def is_empty(self) -> bool:
        """Return True if the journal is empty. The answer holds until the version of the journal changes."""
        version = self.version()
        if version != self.empty_at:
            self.empty_at = None if self._appending or self.journal.state().entries else version
        return self.empty_at is not None

    def following(self, backlogs: Iterable[Backlog]) -> set[Backlog]:
        """Return the backlogs that have entries in the journal, or are about to."""
        some = set(backlogs)
        return self.journal.holds(some) | (some & self._appending.keys())

    def forget_growth(self) -> None:
        """Stop measuring the growth of the journal, because nothing can leave it at the moment."""
        self._shortest = None

    def growth(self) -> tuple[int, int]:
        """Return the growth of the journal while the store is available, and its number of entries."""
        entries = self.journal.state().entries
        self._shortest = entries if self._shortest is None else min(self._shortest, entries)
        return entries - self._shortest, entries

    async def push(self, flight: PushFlight, owners: Sequence[tuple[int, int]], reason: OperationReason) -> None:
        """Append these items of a flight to the journal, and its failed batches, and answer them."""
        batches = [*flight.failed, *pack_by_name(flight.requests, owners, self._options, self._ids.many)]
        by_request: dict[int, list[PartitionBatch]] = defaultdict(list)
        for batch in batches:
            for part in batch.by_request():
                by_request[part.owners[0][0]].append(part)
        added: list[tuple[PartitionBatch, tuple[int, int], NewEntry]] = []
        room = self.journal.free_bytes()
        for number, mine in by_request.items():
            entries = [
                (part, where, self._push_entry(part, *where)) for part in mine for where in part.operation_ranges()
            ]
            size = sum(entry.size for _, _, entry in entries)
            error = self._refusal(mine) or (self._full() if size > room else None)
            if isinstance(flight.outcomes[number], list) and error is None:
                room -= size
                added += entries
            elif error is not None:
                for part in mine:
                    flight.refuse(part, error)
        counts = await self._append([entry for _, _, entry in added])
        outcome = PushOutcome("buffered", "", reason=reason, estimated_wait=self._estimate(), durability="journal")
        for part, where, entry in reversed(added):
            if isinstance(counts, FairlaneError):
                flight.refuse(part, counts)
                continue
            outcome.operation_id, outcome.queue_position = str(entry.id), max(1, counts.get(entry.backlog, 1))
            flight.answer(part, where, outcome)

    def _options(self, tenant: str, queue: str) -> QueueOptions:
        return self._catalogue.recall_options(tenant, queue) or _KEEPS_ALL

    def _push_entry(self, part: PartitionBatch, start: int, end: int) -> NewEntry:
        # Ids are looked up when it is applied, even generated ones, because it may have been applied before.
        payload = push_payload(part.slice.fragments[start:end], doubt=True)
        return NewEntry(Backlog("push", *part.partition), end - start, payload, UUID(self._ids()))

    def _refusal(self, mine: Sequence[PartitionBatch]) -> FairlaneError | None:
        """Return the error that the store would answer with, as far as it can be known without asking it."""
        for part in mine:
            tenant, name, partition = part.partition
            options = self._catalogue.recall_options(tenant, name)
            if options is not None and options.encryption_enabled and not self.journal.sealed:
                return StoreUnavailable(
                    f"queue {name!r} is encrypted, and this broker has no encryption key to store its messages "
                    "in the journal"
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
        """Append entries. Returns the number in each backlog, or the error.

        Their backlogs count as occupied from now on, even if the caller gives up, until it is known if the entries are
        in the journal.
        """
        if not entries:
            return {}
        backlogs = Counter(entry.backlog for entry in entries)
        self.empty_at = None
        self._appending += backlogs
        writing = asyncio.ensure_future(self.journal.append(entries, self._timeout.abandoned_backlogs()))
        writing.add_done_callback(lambda _: self._written(backlogs))
        try:
            return await asyncio.shield(writing)
        except FairlaneError as error:
            return error

    def _written(self, backlogs: Counter[Backlog]) -> None:
        self._appending -= backlogs
        self._journal_changed.set()

    async def acks(self, requests: Sequence[AckRequest], error: FairlaneError, reason: OperationReason) -> AckAnswers:
        """Append acks to the journal, whose entries may be applied twice.

        An ack changes nothing the second time, nor does a nack that its lease fences. A nack without a lease would
        count twice, so it is refused: with `error` if that says that it may be applied already.
        """
        answers: AckAnswers = []
        added: list[tuple[int, Sequence[int], NewEntry]] = []
        maybe_applied, room = isinstance(error, OutcomeUnknown), self.journal.free_bytes()
        for number, request in enumerate(requests):
            entries = [
                (number, indexes, self._ack_entry(request, indexes)) for indexes in lanes_of(request.items).values()
            ]
            size = sum(entry.size for _, _, entry in entries)
            if unfenced(request):
                answers.append(error if maybe_applied else StoreUnavailable(_UNFENCED))
            elif size > room:
                answers.append(error if maybe_applied else self._full())
            else:
                room -= size
                answers.append(Outcomes(request.items))
                added += entries
        counts = await self._append([entry for _, _, entry in added])
        wait = self._estimate()
        for number, indexes, entry in added:
            answer = answers[number]
            if isinstance(counts, FairlaneError):
                answers[number] = error if maybe_applied else counts
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
        """Return the estimated wait of a new entry in seconds: the age of the oldest one, or the time to drain all."""
        state = self.journal.state()
        waited = 0.0 if state.oldest_at is None else (wall_clock() - state.oldest_at) / 1e6
        return round(max(1.0, waited, self._rate.seconds_for(state.messages) or 0.0), 2)
