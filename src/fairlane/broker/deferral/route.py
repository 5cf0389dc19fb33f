"""The route of pushes and acks: into the store, into its operations, or into the journal while it does not take them.

A backlog with entries in the journal stays there: what comes for it follows them, whichever process it comes to, also
when the store is back, until the drain has caught up. Every step that decides where something goes and marks its
backlog is done without waiting in between, so that two requests for one backlog keep their order."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from time import monotonic
from typing import Any

from fairlane.broker.ack import Acker, AckRequest
from fairlane.broker.announcer import Announcer
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.enqueue import Enqueuer
from fairlane.broker.deferral.entries import (
    AckAnswers,
    Part,
    PushAnswers,
    Share,
    ack_backlog,
    ack_backlogs,
    ack_entries,
    is_deduplicated,
    parts,
    push_backlog,
    push_backlogs,
    refused,
    unfenced,
    unsettled,
)
from fairlane.broker.deferral.patience import PATIENCE_SECONDS, Patience
from fairlane.broker.deferral.store_watch import StoreWatch
from fairlane.broker.flags import PUSH_MAINTENANCE, Flags
from fairlane.broker.push import Pusher
from fairlane.broker.push_batch import UNDECIDED, Flush, PushRequest
from fairlane.errors import (
    FairlaneError,
    InvalidRequest,
    JournalFull,
    LaneLocked,
    LaneWaiting,
    OutcomeUnknown,
    StoreUnavailable,
)
from fairlane.model.ids import Uuid7
from fairlane.model.message import PushItem
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.outcome import AckOutcome, OperationReason, Outcomes, PushOutcome
from fairlane.runtime.batcher import LateAnswer
from fairlane.runtime.clock import wall_clock
from fairlane.runtime.rate import Rate
from fairlane.store.contract.journal import Backlog, Journal, NewEntry
from fairlane.store.contract.store import Store

REST, REST_SECONDS_MAX = 4.0, 0.5
"""To enqueue a push and apply it later costs several times what executing it does. So after pushes were enqueued none
are for so many times as long: else a load that lasts would leave little time for executing any."""
_UNFENCED = (
    "a nack without a lease cannot wait in the journal, for it could count twice; say it with the lease, or try again"
)

PushRun = Callable[[Flush], Coroutine[Any, Any, PushAnswers]]
AckRun = Callable[[list[AckRequest]], Coroutine[Any, Any, AckAnswers]]


class Route:
    """The route of pushes and acks. `journal` is None in a broker that has none: then there is the store alone."""

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        flags: Flags,
        pusher: Pusher,
        acker: Acker,
        enqueuer: Enqueuer,
        announcer: Announcer,
        journal: Journal | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.watch = StoreWatch(lambda: store.answer())
        self.news = asyncio.Event()
        """Set when there may be something to drain from the journal."""
        self.patience = Patience(self.watch, patience_seconds, ended=self.news.set)
        self.rate = Rate()
        """Of messages that leave the journal."""
        self.journal = journal
        self._catalogue = catalogue
        self._flags = flags
        self._pusher = pusher
        self._acker = acker
        self._enqueuer = enqueuer
        self._announcer = announcer
        self._ids = Uuid7(store.id_time)
        self._version: Callable[[], int] = journal.version if journal is not None else lambda: 0
        self._empty_at: int | None = None
        """The version of the journal at which it was seen empty: while it has no other, everything goes straight."""
        self._appending: Counter[Backlog] = Counter()
        """The backlogs of entries that are being appended."""
        self._rest_until = 0.0

    def reason(self) -> OperationReason | None:
        """Why every push goes to the journal now, if so."""
        if PUSH_MAINTENANCE in self._flags.on:
            return "maintenance"
        return None if self.watch.up else "store_unavailable"

    def following(self, backlogs: Iterable[Backlog]) -> set[Backlog]:
        """Those that have entries in the journal, or are about to."""
        if self.journal is None:
            return set()
        some = set(backlogs)
        return self.journal.holds(some) | (some & self._appending.keys())

    def check(self, tenant: str, steps: Iterable[object]) -> None:
        """LaneWaiting if a push of a transaction would have to follow entries in the journal: a transaction never
        becomes an operation."""
        if self.journal is None or self._empty_at == self._version():
            return
        pushes = [step for step in steps if isinstance(step, PushItem)]
        for _, _, queue, partition in self.following(push_backlog(tenant, step) for step in pushes):
            raise LaneWaiting(
                f"earlier messages for partition {partition!r} of queue {queue!r} wait in the journal; try again soon"
            )

    async def is_there(self, why: str) -> bool:
        """Whether the store is, though something failed."""
        return await self.watch.check(why, self.patience.silence_seconds())

    def push(
        self, requests: list[PushRequest], run: PushRun | None = None
    ) -> Coroutine[Any, Any, Sequence[list[PushOutcome] | Exception | LateAnswer]]:
        """`run` brings a flush into the store, one way or another."""
        if self.journal is None:
            return self._push_alone(requests, run)
        if self.watch.up and PUSH_MAINTENANCE not in self._flags.on and self._version() == self._empty_at:
            return self._push(requests, run or self._pusher.run)
        return self._push_around(requests, run or self._pusher.run)

    async def enqueue(self, requests: list[PushRequest]) -> Sequence[list[PushOutcome] | Exception | LateAnswer]:
        """Make operations of pushes, in the store if that can be."""
        await asyncio.sleep(self._rest_until - monotonic())
        began = monotonic()
        try:
            return await self.push(requests, self._pusher.run_enqueue)
        finally:
            ended = monotonic()
            self._rest_until = ended + min(REST_SECONDS_MAX, REST * (ended - began))

    async def _push_alone(
        self, requests: list[PushRequest], run: PushRun | None
    ) -> Sequence[list[PushOutcome] | Exception | LateAnswer]:
        if run is not None:
            return await run(Flush(requests))
        outcomes = await self._pusher.flush(requests)
        for late in outcomes:
            if isinstance(late, asyncio.Future):
                late.add_done_callback(lambda _: self._announcer.flushed())
        self._announcer.flushed()
        return outcomes

    async def _push(self, requests: Sequence[PushRequest], run: PushRun) -> PushAnswers:
        """Into the store; what it does not take, or not in time, into the journal."""
        flush = Flush(requests)
        done = await self.patience.wait_for(run(flush), lambda: is_deduplicated(flush), lambda: push_backlogs(requests))
        flush.abandoned = not done
        self._announcer.flushed()
        lost = [
            number
            for number, outcome in enumerate(flush.outcomes)
            if isinstance(outcome, StoreUnavailable | OutcomeUnknown | LaneLocked)
            or (not done and isinstance(outcome, list) and any(one is UNDECIDED for one in outcome))
        ]
        if not lost:
            return flush.outcomes
        answers: PushAnswers = list(flush.outcomes)
        reason = await self._why([answers[number] for number in lost])
        await self._append_pushes(requests, unsettled(flush, lost, answers), answers, reason)
        return answers

    async def _why(self, lost: Sequence[object]) -> OperationReason:
        """Why these go to the journal. Lanes that somebody holds say nothing of the store."""
        others = [outcome for outcome in lost if not isinstance(outcome, LaneLocked)]
        if not others:
            return "lane_locked"
        error = next((outcome for outcome in others if isinstance(outcome, FairlaneError)), None)
        there = await self.is_there(str(error) if error else "a push got no answer in time")
        return "system_busy" if there else "store_unavailable"

    async def _push_around(self, requests: list[PushRequest], run: PushRun) -> PushAnswers:
        """Each item into the journal or into the store, as its backlog demands."""
        reason = self.reason()
        if reason is None and self._is_empty():
            return await self._push(requests, run)
        following = set() if reason else self.following(push_backlogs(requests))
        journalled: list[Share] = []
        direct: dict[int, list[int]] = defaultdict(list)
        for number, request in enumerate(requests):
            for index, item in enumerate(request.items):
                if reason is not None or push_backlog(request.tenant, item) in following:
                    journalled.append(Share(number, index))
                else:
                    direct[number].append(index)
        answers: PushAnswers = [[UNDECIDED] * len(request.items) for request in requests]
        await self._append_pushes(requests, journalled, answers, reason or "maintaining_order")
        if not direct:
            return answers
        some = [PushRequest(requests[n].tenant, [requests[n].items[i] for i in mine]) for n, mine in direct.items()]
        for (number, mine), outcome in zip(direct.items(), await self._push(some, run), strict=True):
            known = answers[number]
            if isinstance(outcome, Exception):
                answers[number] = outcome
            elif isinstance(known, list):
                for index, one in zip(mine, outcome, strict=True):
                    known[index] = one
        return answers

    def _is_empty(self) -> bool:
        """Look whether the journal is, for now and as long as nobody changes it."""
        assert self.journal is not None
        version = self._version()
        self._empty_at = None if self._appending or self.journal.state().entries else version
        return self._empty_at is not None

    async def _append_pushes(
        self, requests: Sequence[PushRequest], shares: Sequence[Share], answers: PushAnswers, reason: OperationReason
    ) -> None:
        """Put these items into the journal and say so, or why not, in `answers`."""
        if not shares:
            return
        assert self.journal is not None
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
        wait = self.estimate()
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
        assert self.journal is not None
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
        assert self.journal is not None
        state = self.journal.state()
        return JournalFull(
            f"the journal is full: {state.bytes} of {state.bytes_max} bytes; it empties when the store is back"
        )

    async def _append(self, entries: Sequence[NewEntry]) -> dict[Backlog, int] | FairlaneError:
        """Append entries, and hold their backlogs from now on; how many are in each, or why they could not be."""
        if not entries:
            return {}
        assert self.journal is not None
        backlogs = Counter(entry.backlog for entry in entries)
        self._empty_at = None
        self._appending += backlogs
        try:
            return await self.journal.append(entries, self.patience.unsettled())
        except FairlaneError as error:
            return error
        finally:
            self._appending -= backlogs
            self.news.set()

    def estimate(self) -> float:
        """Seconds that what comes now will wait: as long as the oldest has, or as what is there takes to drain."""
        assert self.journal is not None
        state = self.journal.state()
        waited = 0.0 if state.oldest_at is None else (wall_clock() - state.oldest_at) / 1e6
        return round(max(1.0, waited, self.rate.seconds_for(state.messages) or 0.0), 2)

    def ack(
        self, requests: list[AckRequest], run: AckRun | None = None
    ) -> Coroutine[Any, Any, Sequence[Sequence[AckOutcome] | Exception | LateAnswer]]:
        """`run` brings acks into the store, one way or another."""
        if self.journal is None:
            return run(requests) if run else self._acker.flush_or_wait(requests)
        if self.watch.up and self._version() == self._empty_at:
            return self._ack(requests, run or self._acker.flush)
        return self._ack_around(requests, run or self._acker.flush)

    def enqueue_acks(
        self, requests: list[AckRequest]
    ) -> Coroutine[Any, Any, Sequence[Sequence[AckOutcome] | Exception | LateAnswer]]:
        """Make operations of acks, in the store if that can be."""
        return self.ack(requests, self._enqueuer.acks)

    async def _ack(self, requests: list[AckRequest], run: AckRun) -> AckAnswers:
        outcomes: AckAnswers = []

        async def collect() -> None:
            outcomes.extend(await run(requests))

        try:
            if await self.patience.wait_for(
                collect(), lambda: not any(map(unfenced, requests)), lambda: ack_backlogs(requests)
            ):
                return await self._append_locked(requests, outcomes)
            error: FairlaneError = OutcomeUnknown("an ack got no answer in time")
        except LaneLocked as locked:
            return await self._append_acks(requests, locked, "lane_locked")
        except (StoreUnavailable, OutcomeUnknown) as lost:
            error = lost
        reason: OperationReason = "system_busy" if await self.is_there(str(error)) else "store_unavailable"
        return await self._append_acks(requests, error, reason)

    async def _append_locked(self, requests: list[AckRequest], outcomes: AckAnswers) -> AckAnswers:
        """Append requests that met a locked lane. Of one that named several lanes some may be settled already."""
        for kind in (LaneLocked, OutcomeUnknown):
            failed = {number: outcome for number, outcome in enumerate(outcomes) if isinstance(outcome, kind)}
            if failed:
                some = [requests[number] for number in failed]
                appended = await self._append_acks(some, next(iter(failed.values())), "lane_locked")
                for number, answer in zip(failed, appended, strict=True):
                    outcomes[number] = answer
        return outcomes

    async def _ack_around(self, requests: list[AckRequest], run: AckRun) -> AckAnswers:
        """Each request into the journal or into the store, as its backlogs demand."""
        if not self.watch.up:
            return await self._append_acks(requests, StoreUnavailable(self.watch.why), "store_unavailable")
        if self._is_empty():
            return await self._ack(requests, run)
        following = self.following(ack_backlogs(requests))
        follow = [any(ack_backlog(request, item) in following for item in request.items) for request in requests]
        first = [request for request, follows in zip(requests, follow, strict=True) if follows]
        rest = [request for request, follows in zip(requests, follow, strict=True) if not follows]
        appended = iter(await self._append_acks(first, StoreUnavailable(self.watch.why), "maintaining_order"))
        settled = iter(await self._ack(rest, run) if rest else ())
        return [next(appended if follows else settled) for follows in follow]

    async def _append_acks(
        self, requests: Sequence[AckRequest], error: FairlaneError, reason: OperationReason
    ) -> AckAnswers:
        """What the journal holds may be applied twice. An ack changes nothing then, and a nack neither while its lease
        fences it; a nack without a lease would count twice, so that it is refused: with the `error` if that says that
        it may be applied already."""
        assert self.journal is not None
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
        wait = self.estimate()
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

    async def stop(self) -> None:
        """The journal stays as it is."""
        await self.watch.stop()
        await self.patience.stop()
