"""The appender: puts pushes and acks into the journal, and says so to their callers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fairlane.broker.ack import AckRequest
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.entries import AckAnswers, Part, PushAnswers, Share, ack_entries, parts, refused, unfenced
from fairlane.broker.deferral.patience import Patience
from fairlane.broker.push_batch import PushRequest
from fairlane.errors import FairlaneError, InvalidRequest, JournalFull, OutcomeUnknown, StoreUnavailable
from fairlane.model.ids import Uuid7
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.outcome import AckOutcome, OperationReason, Outcomes, PushOutcome
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.rate import Rate
from fairlane.store.contract.journal import Backlog, NewEntry

if TYPE_CHECKING:
    from fairlane.store.journal.journal import Journal

_UNFENCED = (
    "a nack without a lease cannot wait in the journal, for it could count twice; say it with the lease, or try again"
)


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

    async def pushes(
        self, requests: Sequence[PushRequest], shares: Sequence[Share], answers: PushAnswers, reason: OperationReason
    ) -> None:
        """Put these items into the journal and say so, or why not, in `answers`."""
        if not shares:
            return
        added: list[Part] = []
        room = self.journal.room()
        for number, mine in parts(requests, shares, self._ids).items():
            size = sum(part.entry.size for part in mine)
            error = self._refusal(mine) or (self._full() if size > room else None)
            if error is not None:
                answers[number] = refused(error, [share for part in mine for share in part.shares])
                continue
            room -= size
            added += mine
        counts = await self._append([part.entry for part in added])
        wait = self._estimate()
        for part in added:
            outcomes = answers[part.request]
            if not isinstance(outcomes, list):
                continue
            if isinstance(counts, FairlaneError):
                answers[part.request] = refused(counts, part.shares)
                continue
            for share, transaction_id in zip(part.shares, part.ids, strict=True):
                outcomes[share.item] = PushOutcome(
                    "buffered",
                    transaction_id,
                    operation_id=str(part.entry.id),
                    queue_position=max(1, counts.get(part.entry.backlog, 1)),
                    reason=reason,
                    estimated_wait=wait,
                    durability="journal",
                )

    def _refusal(self, mine: Sequence[Part]) -> FairlaneError | None:
        """What the store would refuse, as far as it is known without it."""
        for part in mine:
            _, tenant, name, partition = part.entry.backlog
            queue = self._catalogue.recall(tenant, name)
            if queue is not None and queue.options.encryption_enabled and not self.journal.sealed:
                return StoreUnavailable(
                    f"queue {name!r} is encrypted, and this broker has no encryption key to keep its messages "
                    "with until the store takes them"
                )
            if queue is not None and queue.options.ordering == "fifo" and partition != DEFAULT_PARTITION:
                return InvalidRequest(f"queue {name!r} is fifo: its only partition is {DEFAULT_PARTITION!r}")
        return None

    def _full(self) -> JournalFull:
        state = self.journal.state()
        return JournalFull(
            f"the journal is full: {state.bytes} of {state.bytes_max} bytes; it empties when the store is back"
        )

    async def _append(self, entries: Sequence[NewEntry]) -> dict[Backlog, int] | FairlaneError:
        """Append entries, and hold their backlogs from now on; how many are in each, or why they could not be."""
        if not entries:
            return {}
        backlogs = Counter(entry.backlog for entry in entries)
        self.empty_at = None
        self._appending += backlogs
        try:
            return await self.journal.append(entries, self._patience.unsettled())
        except FairlaneError as error:
            return error
        finally:
            self._appending -= backlogs
            self._news.set()

    async def acks(self, requests: Sequence[AckRequest], error: FairlaneError, reason: OperationReason) -> AckAnswers:
        """What the journal holds may be applied twice. An ack changes nothing then, and a nack neither while its lease
        fences it; a nack without a lease would count twice, so that it is refused: with the `error` if that says that
        it may be applied already."""
        answers: AckAnswers = []
        added: list[tuple[int, dict[NewEntry, Sequence[int]]]] = []
        doubtful, room = isinstance(error, OutcomeUnknown), self.journal.room()
        for number, request in enumerate(requests):
            entries = ack_entries(request, self._ids)
            size = sum(entry.size for entry in entries)
            if unfenced(request):
                answers.append(error if doubtful else StoreUnavailable(_UNFENCED))
            elif size > room:
                answers.append(error if doubtful else self._full())
            else:
                room -= size
                answers.append(Outcomes(request.items))
                added.append((number, entries))
        counts = await self._append([entry for _, entries in added for entry in entries])
        wait = self._estimate()
        for number, entries in added:
            if isinstance(counts, FairlaneError):
                answers[number] = counts
                continue
            outcomes = Outcomes(requests[number].items)
            for entry, indexes in entries.items():
                outcome = AckOutcome(True, "", operation_id=str(entry.id), durability="journal")
                outcome.queue_position, outcome.reason = max(1, counts.get(entry.backlog, 1)), reason
                outcome.estimated_wait = wait
                outcomes.add(indexes, outcome)
            answers[number] = outcomes
        return answers

    def _estimate(self) -> float:
        """Seconds that what comes now will wait: as long as the oldest has, or as what is there takes to drain."""
        state = self.journal.state()
        waited = 0.0 if state.oldest_at is None else (wall_clock() - state.oldest_at) / 1e6
        return round(max(1.0, waited, self._rate.seconds_for(state.messages) or 0.0), 2)
