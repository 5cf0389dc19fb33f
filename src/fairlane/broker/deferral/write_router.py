"""Routes pushes and acks into the store, into its operations, or into the journal while the store is unavailable.

A backlog with entries in the journal stays there: later writes follow them, in whichever process they arrive, even when
the store is available again, until the drain has caught up. Every step that chooses a route and marks its backlog runs
without waiting in between, so that two requests for one backlog keep their order.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fairlane.broker.ack import Acker, AckRequest
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.enqueue import Enqueuer
from fairlane.broker.deferral.journal_writer import (
    AckAnswers,
    JournalWriter,
    ack_backlog,
    ack_backlogs,
    push_backlog,
    push_backlogs,
    unfenced,
)
from fairlane.broker.deferral.store_health import StoreHealth
from fairlane.broker.deferral.store_timeout import STORE_TIMEOUT_SECONDS, StoreTimeout
from fairlane.broker.flags import PUSHES_PAUSED, Flags
from fairlane.broker.push import Announcer, Pusher
from fairlane.broker.push_batch import UNDECIDED, PushFlight, PushRequest
from fairlane.errors import FairlaneError, LaneLocked, LaneWaiting, OutcomeUnknown, Overloaded, StoreUnavailable
from fairlane.model.ids import Uuid7
from fairlane.model.message import PushItem
from fairlane.model.outcome import AckOutcome, OperationReason, PushOutcome
from fairlane.runtime.batcher import LateAnswer
from fairlane.runtime.rate import RateEstimate
from fairlane.store.contract.store import Store

if TYPE_CHECKING:
    from fairlane.broker.admission import Admission
    from fairlane.store.journal.journal import Journal

REST, REST_SECONDS_MAX = 4.0, 0.5
"""Pause after pushes became operations, as a multiple of the time that took, and its maximum.

Enqueuing a push and applying it later costs several times more than executing it. Without the pause, a lasting load
would leave little time to execute any.
"""

PushAnswers = list[list[PushOutcome] | Exception]
PushRun = Callable[[PushFlight], Coroutine[Any, Any, PushAnswers]]
AckRun = Callable[[list[AckRequest]], Coroutine[Any, Any, AckAnswers]]


class WriteRouter:
    """A router of pushes and acks to the store, its operations or the journal. Without a `journal`, to the store."""

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
        store_timeout_seconds: float = STORE_TIMEOUT_SECONDS,
    ) -> None:
        self.health = StoreHealth(store)
        self.journal_changed = asyncio.Event()
        """Set when there may be something to drain from the journal."""
        self.timeout = StoreTimeout(self.health, store_timeout_seconds, self.journal_changed)
        self.rate = RateEstimate()
        """Rate of messages that leave the journal."""
        self.journal = journal
        self.catalogue = catalogue
        self._flags = flags
        self._pusher = pusher
        self._acker = acker
        self._enqueuer = enqueuer
        self._announcer = announcer
        self._rest_until = 0.0
        self._journal_writer: JournalWriter | None = None
        if journal is not None:
            ids = Uuid7(store.id_time)
            self._journal_writer = JournalWriter(journal, catalogue, ids, self.timeout, self.rate, self.journal_changed)

    def reason(self) -> OperationReason | None:
        """Return the reason why every push goes to the journal now, or None."""
        if PUSHES_PAUSED in self._flags.on:
            return "maintenance"
        return None if self.health.up else "store_unavailable"

    def check(self, tenant: str, steps: Iterable[object]) -> None:
        """Raise LaneWaiting if a push of a transaction would have to follow entries in the journal.

        A transaction never becomes an operation.
        """
        if (writer := self._journal_writer) is None or writer.is_empty():
            return
        pushes = [step for step in steps if isinstance(step, PushItem)]
        for _, _, queue, partition in writer.following(push_backlog(tenant, step) for step in pushes):
            raise LaneWaiting(
                f"earlier messages for partition {partition!r} of queue {queue!r} wait in the journal; try again soon"
            )

    async def check_store(self, why: str) -> bool:
        """Check the store after an error. Returns True if it is available."""
        return await self.health.check(why, self.timeout.silence_seconds())

    async def on_store_error(self, error: str) -> None:
        """Check the store after an error in a service. A no-op without a journal."""
        if self.journal is not None:
            await self.check_store(error)

    def push(
        self, limits: Admission | None, requests: list[PushRequest], run: PushRun | None = None
    ) -> Coroutine[Any, Any, Sequence[list[PushOutcome] | Exception | LateAnswer]]:
        """Route pushes.

        `run` brings the flight into the store, by default as messages. `limits` refuse operations when there are too
        many.
        """
        if (writer := self._journal_writer) is None:
            return self._push_alone(PushFlight(requests, limits), run)
        straight = self.health.up and PUSHES_PAUSED not in self._flags.on
        if straight and writer.version() == writer.empty_at:
            return self._push(PushFlight(requests, limits), run or self._pusher.run, writer)
        return self._push_around(PushFlight(requests, limits), run or self._pusher.run, writer)

    async def enqueue(
        self, limits: Admission | None, requests: list[PushRequest]
    ) -> Sequence[list[PushOutcome] | Exception | LateAnswer]:
        """Keep pushes as operations, in the store if it is available and in the journal otherwise."""
        await asyncio.sleep(self._rest_until - monotonic())
        began = monotonic()
        try:
            return await self.push(limits, requests, self._pusher.run_enqueue)
        finally:
            ended = monotonic()
            self._rest_until = ended + min(REST_SECONDS_MAX, REST * (ended - began))

    async def _push_alone(
        self, flight: PushFlight, run: PushRun | None
    ) -> Sequence[list[PushOutcome] | Exception | LateAnswer]:
        if run is not None:
            return await run(flight)
        outcomes = await self._pusher.flush_or_wait(flight)
        for late in outcomes:
            if isinstance(late, asyncio.Future):
                late.add_done_callback(lambda _: self._announcer.wake_polls())
        self._announcer.wake_polls()
        return outcomes

    async def _push(self, flight: PushFlight, run: PushRun, writer: JournalWriter) -> PushAnswers:
        """Push into the store. What it refuses, or does not finish in time, goes to the journal."""
        done = await self.timeout.wait_for(run(flight), flight.is_deduplicated, lambda: push_backlogs(flight.requests))
        flight.abandoned = not done
        self._announcer.wake_polls()
        lost = [
            number
            for number, outcome in enumerate(flight.outcomes)
            if isinstance(outcome, StoreUnavailable | OutcomeUnknown | LaneLocked)
            or (not done and isinstance(outcome, list) and any(one is UNDECIDED for one in outcome))
        ]
        if not lost:
            return flight.outcomes
        reason = await self._why([flight.outcomes[number] for number in lost])
        rest = flight.rest(lost)
        await writer.push(rest, rest.undecided(), reason)
        return rest.outcomes

    async def _why(self, lost: Sequence[object]) -> OperationReason:
        """Return the reason why these go to the journal. A locked lane does not mean that the store is unavailable."""
        others = [outcome for outcome in lost if not isinstance(outcome, LaneLocked)]
        if not others:
            return "lane_locked"
        error = next((outcome for outcome in others if isinstance(outcome, FairlaneError)), None)
        there = await self.check_store(str(error) if error else "a push got no answer in time")
        return "system_busy" if there else "store_unavailable"

    async def _push_around(self, flight: PushFlight, run: PushRun, writer: JournalWriter) -> PushAnswers:
        """Push each item into the journal or into the store, as its backlog demands."""
        requests, reason = flight.requests, self.reason()
        if reason is None and writer.is_empty():
            return await self._push(flight, run, writer)
        if reason is not None:
            writer.forget_growth()
        following = set() if reason else writer.following(push_backlogs(requests))
        refusal = self._refusal("push", flight.limits, writer) if following else None
        journalled: list[tuple[int, int]] = []
        direct: dict[int, list[int]] = defaultdict(list)
        for number, request in enumerate(requests):
            if refusal and any(push_backlog(request.tenant, item) in following for item in request.items):
                flight.outcomes[number] = refusal
                continue
            for index, item in enumerate(request.items):
                if reason is not None or push_backlog(request.tenant, item) in following:
                    journalled.append((number, index))
                else:
                    direct[number].append(index)
        await writer.push(flight, journalled, reason or "maintaining_order")
        direct = {number: mine for number, mine in direct.items() if isinstance(flight.outcomes[number], list)}
        if not direct:
            return flight.outcomes
        some = [
            msgspec.structs.replace(requests[n], items=[requests[n].items[index] for index in mine], can_wait=False)
            for n, mine in direct.items()
        ]
        for (number, mine), outcome in zip(
            direct.items(), await self._push(PushFlight(some, flight.limits), run, writer), strict=True
        ):
            if isinstance(outcome, Exception):
                flight.refuse_request(number, outcome)
                continue
            for index, one in zip(mine, outcome, strict=True):
                flight.put((number, index), one)
        return flight.outcomes

    def _refusal(
        self, kind: Literal["push", "ack"], limits: Admission | None, writer: JournalWriter
    ) -> Overloaded | None:
        """Return the error if no more of this kind may follow entries of the journal, else None."""
        return limits.refusal_by_journal(kind, *writer.growth(), self.rate) if limits is not None else None

    def ack(
        self, limits: Admission | None, requests: list[AckRequest], run: AckRun | None = None
    ) -> Coroutine[Any, Any, Sequence[Sequence[AckOutcome] | Exception | LateAnswer]]:
        """Route acks. `run` brings them into the store, as acks by default."""
        if (writer := self._journal_writer) is None:
            return run(requests) if run else self._acker.flush_or_wait(requests)
        if self.health.up and writer.version() == writer.empty_at:
            return self._ack(requests, run or self._acker.flush, writer)
        return self._ack_around(limits, requests, run or self._acker.flush, writer)

    def enqueue_acks(
        self, limits: Admission | None, requests: list[AckRequest]
    ) -> Coroutine[Any, Any, Sequence[Sequence[AckOutcome] | Exception | LateAnswer]]:
        """Make operations of acks, in the store if it is available."""
        return self.ack(limits, requests, self._enqueuer.acks)

    def sends_acks_to_store(self) -> bool:
        """Return True if no ack has to go to the journal: the store is available and the journal is empty."""
        writer = self._journal_writer
        return writer is None or (self.health.up and writer.version() == writer.empty_at)

    async def _ack(self, requests: list[AckRequest], run: AckRun, writer: JournalWriter) -> AckAnswers:
        error: FairlaneError = OutcomeUnknown("an ack got no answer in time")
        try:
            done = await self.timeout.wait_for(
                run(requests), lambda: not any(map(unfenced, requests)), lambda: ack_backlogs(requests)
            )
            if done is not None:
                outcomes: AckAnswers = done.result()
                locked = [outcome for outcome in outcomes if isinstance(outcome, LaneLocked | OutcomeUnknown)]
                return await _append_locked(requests, outcomes, writer) if locked else outcomes
        except LaneLocked as lost:
            return await writer.acks(requests, lost, "lane_locked")
        except (StoreUnavailable, OutcomeUnknown) as lost:
            error = lost
        reason: OperationReason = "system_busy" if await self.check_store(str(error)) else "store_unavailable"
        return await writer.acks(requests, error, reason)

    async def _ack_around(
        self, limits: Admission | None, requests: list[AckRequest], run: AckRun, writer: JournalWriter
    ) -> AckAnswers:
        """Bring each request into the journal or into the store, as its backlogs demand."""
        away = StoreUnavailable(self.health.why)
        if not self.health.up:
            writer.forget_growth()
            return await writer.acks(requests, away, "store_unavailable")
        if writer.is_empty():
            return await self._ack(requests, run, writer)
        following = writer.following(ack_backlogs(requests))
        follow = [any(ack_backlog(request, item) in following for item in request.items) for request in requests]
        first = [request for request, follows in zip(requests, follow, strict=True) if follows]
        rest = [request for request, follows in zip(requests, follow, strict=True) if not follows]
        refusal = self._refusal("ack", limits, writer) if first else None
        appended = iter([refusal] * len(first) if refusal else await writer.acks(first, away, "maintaining_order"))
        settled = iter(await self._ack(rest, run, writer) if rest else ())
        return [next(appended if follows else settled) for follows in follow]

    async def stop(self) -> None:
        """Stop without changing the journal."""
        await self.health.stop()
        await self.timeout.stop()


async def _append_locked(requests: list[AckRequest], outcomes: AckAnswers, writer: JournalWriter) -> AckAnswers:
    """Append requests with a locked lane to the journal. Some lanes of a request may be settled already."""
    for kind in (LaneLocked, OutcomeUnknown):
        failed = {number: outcome for number, outcome in enumerate(outcomes) if isinstance(outcome, kind)}
        if failed:
            some = [requests[number] for number in failed]
            appended = await writer.acks(some, next(iter(failed.values())), "lane_locked")
            for number, answer in zip(failed, appended, strict=True):
                outcomes[number] = answer
    return outcomes
