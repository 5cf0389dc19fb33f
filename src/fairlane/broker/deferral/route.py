"""The route of pushes and acks: into the store, into its operations, or into the journal while it does not take them.

A backlog with entries in the journal stays there: what comes for it follows them, whichever process it comes to, also
when the store is back, until the drain has caught up. Every step that decides where something goes and marks its
backlog is done without waiting in between, so that two requests for one backlog keep their order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fairlane.broker.ack import Acker, AckRequest
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.append import (
    AckAnswers,
    Appender,
    ack_backlog,
    ack_backlogs,
    push_backlog,
    push_backlogs,
    unfenced,
)
from fairlane.broker.deferral.enqueue import Enqueuer
from fairlane.broker.deferral.patience import PATIENCE_SECONDS, Patience, StoreWatch
from fairlane.broker.flags import PUSH_MAINTENANCE, Flags
from fairlane.broker.push import Announcer, Pusher
from fairlane.broker.push_batch import UNDECIDED, Flush, PushRequest
from fairlane.errors import FairlaneError, LaneLocked, LaneWaiting, OutcomeUnknown, Overloaded, StoreUnavailable
from fairlane.model.ids import Uuid7
from fairlane.model.message import PushItem
from fairlane.model.outcome import AckOutcome, OperationReason, PushOutcome
from fairlane.runtime.batcher import LateAnswer
from fairlane.runtime.rate import Rate
from fairlane.store.contract.store import Store

if TYPE_CHECKING:
    from fairlane.broker.admission import Admission
    from fairlane.store.journal.journal import Journal

REST, REST_SECONDS_MAX = 4.0, 0.5
"""To enqueue a push and apply it later costs several times what executing it does. So after pushes were enqueued none
are for so many times as long: else a load that lasts would leave little time for executing any."""

PushAnswers = list[list[PushOutcome] | Exception]
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
        self.watch = StoreWatch(store)
        self.news = asyncio.Event()
        """Set when there may be something to drain from the journal."""
        self.patience = Patience(self.watch, patience_seconds, self.news)
        self.rate = Rate()
        """Of messages that leave the journal."""
        self.journal = journal
        self.catalogue = catalogue
        self._flags = flags
        self._pusher = pusher
        self._acker = acker
        self._enqueuer = enqueuer
        self._announcer = announcer
        self.admission: Admission | None = None
        """Says how many pushes and acks may wait."""
        self._rest_until = 0.0
        self._appender: Appender | None = None
        if journal is not None:
            ids = Uuid7(store.id_time)
            self._appender = Appender(journal, catalogue, ids, self.patience, self.rate, self.news)

    def reason(self) -> OperationReason | None:
        """Why every push goes to the journal now, if so."""
        if PUSH_MAINTENANCE in self._flags.on:
            return "maintenance"
        return None if self.watch.up else "store_unavailable"

    def check(self, tenant: str, steps: Iterable[object]) -> None:
        """LaneWaiting if a push of a transaction would have to follow entries in the journal: a transaction never
        becomes an operation."""
        if (appender := self._appender) is None or appender.is_empty():
            return
        pushes = [step for step in steps if isinstance(step, PushItem)]
        for _, _, queue, partition in appender.following(push_backlog(tenant, step) for step in pushes):
            raise LaneWaiting(
                f"earlier messages for partition {partition!r} of queue {queue!r} wait in the journal; try again soon"
            )

    async def is_there(self, why: str) -> bool:
        """Whether the store is, though something failed."""
        return await self.watch.check(why, self.patience.silence_seconds())

    async def met(self, error: str) -> None:
        """Take note of an error of the store that a service met. Without a journal nothing depends on it."""
        if self.journal is not None:
            await self.is_there(error)

    def push(
        self, requests: list[PushRequest], run: PushRun | None = None
    ) -> Coroutine[Any, Any, Sequence[list[PushOutcome] | Exception | LateAnswer]]:
        """`run` brings a flush into the store, one way or another."""
        if (appender := self._appender) is None:
            return self._push_alone(requests, run)
        straight = self.watch.up and PUSH_MAINTENANCE not in self._flags.on
        if straight and appender.version() == appender.empty_at:
            return self._push(requests, run or self._pusher.run, appender)
        return self._push_around(requests, run or self._pusher.run, appender)

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

    async def _push(self, requests: Sequence[PushRequest], run: PushRun, journal: Appender) -> PushAnswers:
        """Into the store; what it does not take, or not in time, into the journal."""
        flush = Flush(requests)
        done = await self.patience.wait_for(run(flush), flush.is_deduplicated, lambda: push_backlogs(requests))
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
        reason = await self._why([flush.outcomes[number] for number in lost])
        rest = flush.rest(lost)
        await journal.push(rest, rest.undecided(), reason)
        return rest.outcomes

    async def _why(self, lost: Sequence[object]) -> OperationReason:
        """Why these go to the journal. Lanes that somebody holds say nothing of the store."""
        others = [outcome for outcome in lost if not isinstance(outcome, LaneLocked)]
        if not others:
            return "lane_locked"
        error = next((outcome for outcome in others if isinstance(outcome, FairlaneError)), None)
        there = await self.is_there(str(error) if error else "a push got no answer in time")
        return "system_busy" if there else "store_unavailable"

    async def _push_around(self, requests: list[PushRequest], run: PushRun, journal: Appender) -> PushAnswers:
        """Each item into the journal or into the store, as its backlog demands."""
        reason = self.reason()
        if reason is None and journal.is_empty():
            return await self._push(requests, run, journal)
        if reason is not None:
            journal.forget_growth()
        following = set() if reason else journal.following(push_backlogs(requests))
        refusal = self._refusal("push", journal) if following else None
        flush = Flush(requests)
        journalled: list[tuple[int, int]] = []
        direct: dict[int, list[int]] = defaultdict(list)
        for number, request in enumerate(requests):
            if refusal and any(push_backlog(request.tenant, item) in following for item in request.items):
                flush.outcomes[number] = refusal
                continue
            for index, item in enumerate(request.items):
                if reason is not None or push_backlog(request.tenant, item) in following:
                    journalled.append((number, index))
                else:
                    direct[number].append(index)
        await journal.push(flush, journalled, reason or "maintaining_order")
        if not direct:
            return flush.outcomes
        some = [
            msgspec.structs.replace(requests[n], items=[requests[n].items[index] for index in mine], patient=False)
            for n, mine in direct.items()
        ]
        for (number, mine), outcome in zip(direct.items(), await self._push(some, run, journal), strict=True):
            if isinstance(outcome, Exception):
                flush.outcomes[number] = outcome
                continue
            for index, one in zip(mine, outcome, strict=True):
                flush.put((number, index), one)
        return flush.outcomes

    def _refusal(self, kind: Literal["push", "ack"], journal: Appender) -> Overloaded | None:
        """Return why no more of this kind may follow entries of the journal; None if it may."""
        return self.admission.refusal_by_journal(kind, *journal.growth(), self.rate) if self.admission else None

    def ack(
        self, requests: list[AckRequest], run: AckRun | None = None
    ) -> Coroutine[Any, Any, Sequence[Sequence[AckOutcome] | Exception | LateAnswer]]:
        """`run` brings acks into the store, one way or another."""
        if (appender := self._appender) is None:
            return run(requests) if run else self._acker.flush_or_wait(requests)
        if self.watch.up and appender.version() == appender.empty_at:
            return self._ack(requests, run or self._acker.flush, appender)
        return self._ack_around(requests, run or self._acker.flush, appender)

    def enqueue_acks(
        self, requests: list[AckRequest]
    ) -> Coroutine[Any, Any, Sequence[Sequence[AckOutcome] | Exception | LateAnswer]]:
        """Make operations of acks, in the store if that can be."""
        return self.ack(requests, self._enqueuer.acks)

    async def _ack(self, requests: list[AckRequest], run: AckRun, journal: Appender) -> AckAnswers:
        error: FairlaneError = OutcomeUnknown("an ack got no answer in time")
        try:
            done = await self.patience.wait_for(
                run(requests), lambda: not any(map(unfenced, requests)), lambda: ack_backlogs(requests)
            )
            if done is not None:
                outcomes: AckAnswers = done.result()
                locked = [outcome for outcome in outcomes if isinstance(outcome, LaneLocked | OutcomeUnknown)]
                return await _append_locked(requests, outcomes, journal) if locked else outcomes
        except LaneLocked as lost:
            return await journal.acks(requests, lost, "lane_locked")
        except (StoreUnavailable, OutcomeUnknown) as lost:
            error = lost
        reason: OperationReason = "system_busy" if await self.is_there(str(error)) else "store_unavailable"
        return await journal.acks(requests, error, reason)

    async def _ack_around(self, requests: list[AckRequest], run: AckRun, journal: Appender) -> AckAnswers:
        """Each request into the journal or into the store, as its backlogs demand."""
        away = StoreUnavailable(self.watch.why)
        if not self.watch.up:
            journal.forget_growth()
            return await journal.acks(requests, away, "store_unavailable")
        if journal.is_empty():
            return await self._ack(requests, run, journal)
        following = journal.following(ack_backlogs(requests))
        follow = [any(ack_backlog(request, item) in following for item in request.items) for request in requests]
        first = [request for request, follows in zip(requests, follow, strict=True) if follows]
        rest = [request for request, follows in zip(requests, follow, strict=True) if not follows]
        refusal = self._refusal("ack", journal) if first else None
        appended = iter([refusal] * len(first) if refusal else await journal.acks(first, away, "maintaining_order"))
        settled = iter(await self._ack(rest, run, journal) if rest else ())
        return [next(appended if follows else settled) for follows in follow]

    async def stop(self) -> None:
        """The journal stays as it is."""
        await self.watch.stop()
        await self.patience.stop()


async def _append_locked(requests: list[AckRequest], outcomes: AckAnswers, journal: Appender) -> AckAnswers:
    """Append requests that met a locked lane. Of one that named several lanes some may be settled already."""
    for kind in (LaneLocked, OutcomeUnknown):
        failed = {number: outcome for number, outcome in enumerate(outcomes) if isinstance(outcome, kind)}
        if failed:
            some = [requests[number] for number in failed]
            appended = await journal.acks(some, next(iter(failed.values())), "lane_locked")
            for number, answer in zip(failed, appended, strict=True):
                outcomes[number] = answer
    return outcomes
