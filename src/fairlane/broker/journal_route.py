"""The route of pushes and acks into the store, or into the journal while the store does not take them.

A backlog with entries in the journal stays there: what comes for it follows them, also when the store is back, until
the drain has caught up. Every step that decides where something goes and marks its backlog is done without waiting in
between, so that two requests for one backlog keep their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fairlane.broker.ack import AckRequest
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.failed_operations import FailedOperations
from fairlane.broker.journal_acks import AckAnswers, append_acks, unfenced
from fairlane.broker.journal_backlogs import JournalBacklogs
from fairlane.broker.journal_codec import ack_backlog, push_backlog
from fairlane.broker.journal_pushes import JournalPushes, PushAnswers, Share, is_deduplicated, unsettled
from fairlane.broker.patience import PATIENCE_SECONDS, Patience
from fairlane.broker.push_batch import UNDECIDED, Flush, PushRequest
from fairlane.broker.store_watch import StoreWatch
from fairlane.errors import FairlaneError, LaneLocked, OutcomeUnknown, StoreUnavailable
from fairlane.model.ids import Uuid7
from fairlane.model.outcome import OperationReason
from fairlane.store.contract.journal import Backlog, Journal

PushRun = Callable[[Flush], Coroutine[Any, Any, PushAnswers]]
AckRun = Callable[[list[AckRequest]], Coroutine[Any, Any, AckAnswers]]


class JournalRoute:
    def __init__(
        self,
        journal: Journal,
        watch: StoreWatch,
        catalogue: Catalogue,
        *,
        maintenance: Callable[[], bool],
        clock_ms: Callable[[], int],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.journal = journal
        self.watch = watch
        self.backlogs = JournalBacklogs(journal)
        self.patience = Patience(watch, patience_seconds, ended=self.backlogs.added.set)
        journal.attach(self.backlogs, self.patience.unsettled)
        self.failed = FailedOperations(self.backlogs)
        self._maintenance = maintenance
        self._ids = Uuid7(clock_ms)
        self._pushes = JournalPushes(self.backlogs, catalogue, self._ids)

    def journal_reason(self) -> OperationReason | None:
        """Why every push goes to the journal now, if so."""
        if self._maintenance():
            return "maintenance"
        return None if self.watch.up else "store_unavailable"

    def unsettled(self) -> set[Backlog]:
        """The backlogs that abandoned work may yet change, in this process or in another of the broker."""
        return self.patience.unsettled() | self.journal.unsettled()

    async def is_there(self, why: str) -> bool:
        """Whether the store is, though something failed."""
        return await self.watch.check(why, self.patience.silence_seconds())

    async def push(self, requests: list[PushRequest], run: PushRun) -> PushAnswers:
        """`run` brings a flush into the store, one way or another."""
        reason = self.journal_reason()
        if reason is None and not self.backlogs:
            return await self._push(requests, run)
        journalled: list[Share] = []
        direct: list[Share] = []
        for number, request in enumerate(requests):
            for index, item in enumerate(request.items):
                backlog = push_backlog(request.tenant, item)
                (journalled if reason is not None or backlog in self.backlogs else direct).append(
                    Share(number, index, None)
                )
        answers: PushAnswers = [[UNDECIDED] * len(request.items) for request in requests]
        await self._pushes.append(requests, journalled, answers, reason or "maintaining_order")
        if direct:
            await self._push_some(requests, direct, answers, run)
        return answers

    async def _push_some(
        self, requests: list[PushRequest], shares: list[Share], answers: PushAnswers, run: PushRun
    ) -> None:
        """Push a part of the items, and put what became of them into their places."""
        indexes: dict[int, list[int]] = defaultdict(list)
        for share in shares:
            indexes[share.request].append(share.item)
        parts = [PushRequest(requests[n].tenant, [requests[n].items[i] for i in some]) for n, some in indexes.items()]
        for (number, some), outcome in zip(indexes.items(), await self._push(parts, run), strict=True):
            known = answers[number]
            if isinstance(outcome, Exception):
                answers[number] = outcome
            elif isinstance(known, list):
                for index, one in zip(some, outcome, strict=True):
                    known[index] = one

    async def _push(self, requests: Sequence[PushRequest], run: PushRun) -> PushAnswers:
        """Into the store; what it does not take, or not in time, into the journal."""
        flush = Flush(requests)
        done = await self.patience.wait_for(
            run(flush), hasty=lambda: is_deduplicated(flush), backlogs=lambda: _push_backlogs(requests)
        )
        flush.abandoned = not done
        lost = [
            number
            for number, outcome in enumerate(flush.outcomes)
            if isinstance(outcome, StoreUnavailable | OutcomeUnknown | LaneLocked)
            or (flush.abandoned and isinstance(outcome, list) and any(one is UNDECIDED for one in outcome))
        ]
        if not lost:
            return flush.outcomes
        answers: PushAnswers = list(flush.outcomes)
        reason = await self._why([answers[number] for number in lost])
        shares = unsettled(flush, lost, answers)
        await self._pushes.append(requests, shares, answers, reason)
        return answers

    async def _why(self, lost: Sequence[object]) -> OperationReason:
        """Why these go to the journal. Lanes that somebody holds say nothing of the store."""
        others = [outcome for outcome in lost if not isinstance(outcome, LaneLocked)]
        if not others:
            return "lane_locked"
        error = next((outcome for outcome in others if isinstance(outcome, FairlaneError)), None)
        there = await self.is_there(str(error) if error else "a push got no answer in time")
        return "system_busy" if there else "store_unavailable"

    async def ack(self, requests: list[AckRequest], run: AckRun) -> AckAnswers:
        if not self.watch.up:
            return await self._append_acks(requests)
        if not self.backlogs:
            return await self._ack(requests, run)
        in_journal = [
            any(ack_backlog(request, item) in self.backlogs for item in request.items) for request in requests
        ]
        answers: AckAnswers = [StoreUnavailable("not reached")] * len(requests)
        for journal in (True, False):
            numbers = [number for number, found in enumerate(in_journal) if found is journal]
            some = [requests[number] for number in numbers]
            if not some:
                continue
            outcomes = await (self._append_acks(some) if journal else self._ack(some, run))
            for number, outcome in zip(numbers, outcomes, strict=True):
                answers[number] = outcome
        return answers

    async def _append_acks(self, requests: list[AckRequest]) -> AckAnswers:
        reason: OperationReason = "maintaining_order" if self.watch.up else "store_unavailable"
        error = StoreUnavailable(self.watch.why)
        return await append_acks(requests, self.backlogs, self._ids, error, doubtful=False, reason=reason)

    async def _ack(self, requests: list[AckRequest], run: AckRun) -> AckAnswers:
        outcomes: AckAnswers = []

        async def collect() -> None:
            outcomes.extend(await run(requests))

        try:
            if await self.patience.wait_for(
                collect(), hasty=lambda: not any(map(unfenced, requests)), backlogs=lambda: _ack_backlogs(requests)
            ):
                return await self._append_locked(requests, outcomes)
            error: FairlaneError = OutcomeUnknown("an ack got no answer in time")
        except LaneLocked as locked:
            return await append_acks(requests, self.backlogs, self._ids, locked, doubtful=False, reason="lane_locked")
        except (StoreUnavailable, OutcomeUnknown) as lost:
            error = lost
        reason: OperationReason = "system_busy" if await self.is_there(str(error)) else "store_unavailable"
        doubtful = isinstance(error, OutcomeUnknown)
        return await append_acks(requests, self.backlogs, self._ids, error, doubtful=doubtful, reason=reason)

    async def _append_locked(self, requests: list[AckRequest], outcomes: AckAnswers) -> AckAnswers:
        """Append requests that met a locked lane. Of one that named several lanes some may be settled already."""
        for kind in (LaneLocked, OutcomeUnknown):
            failed = {number: outcome for number, outcome in enumerate(outcomes) if isinstance(outcome, kind)}
            if failed:
                some = [requests[number] for number in failed]
                error = next(iter(failed.values()))
                doubtful = kind is OutcomeUnknown
                appended = await append_acks(
                    some, self.backlogs, self._ids, error, doubtful=doubtful, reason="lane_locked"
                )
                for number, answer in zip(failed, appended, strict=True):
                    outcomes[number] = answer
        return outcomes


def _push_backlogs(requests: Sequence[PushRequest]) -> frozenset[Backlog]:
    return frozenset(push_backlog(request.tenant, item) for request in requests for item in request.items)


def _ack_backlogs(requests: Sequence[AckRequest]) -> frozenset[Backlog]:
    return frozenset(ack_backlog(request, item) for request in requests for item in request.items)
