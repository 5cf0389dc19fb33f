"""Ack and pop: applies the acks of a request and claims its next messages in one transaction of the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from uuid import UUID

from fairlane.broker.ack import Acker, AckRequest
from fairlane.broker.ack_flight import AckFlight, AttachedAcks
from fairlane.broker.ack_plan import Plan
from fairlane.broker.deferral.journal_writer import ack_backlogs
from fairlane.broker.deferral.write_router import WriteRouter
from fairlane.errors import BrokerFailed, OutcomeUnknown, Unavailable
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import Outcomes
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import AckResult, LaneAck, PopCall, PopResult
from fairlane.telemetry import Telemetry


class AttachedAcker:
    """Applies acks that are attached to pops."""

    def __init__(self, store: Store, acker: Acker, write_router: WriteRouter, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._store = store
        self._acker = acker
        self._write_router = write_router
        self.attached: dict[UUID, AttachedAcks] = {}
        """Acks that are applied with a claim, by its token."""

    async def attach(self, request: AckRequest, queue_id: int) -> AttachedAcks | None:
        """Return the acks for a pop of the queue.

        Returns None if they must be applied separately: some have no lease or belong to another queue, or earlier acks
        are in the journal.
        """
        if not self._write_router.sends_acks_to_store():
            return None
        outcomes = Outcomes(request.items)
        try:
            plans = self._acker.plan_uniform(request)
            if plans is None:
                plans = await self._acker.plan(request, outcomes)
        except Unavailable:
            return None
        if not plans or any(plan.ack.token is None or plan.queue_id != queue_id for plan in plans):
            return None
        return AttachedAcks(request, plans, outcomes, _indexes(plans), perf_counter())

    async def pop(self, call: PopCall, give_back: Callable[[LeaseId], None]) -> PopResult:
        """Pop, and apply the acks that are attached to the claims before.

        Acks of locked lanes stay pending, and all of them if the outcome is not known. With a journal, a store that
        does not answer in time raises OutcomeUnknown, so that the acks can go there. `give_back` releases a lease that
        the store grants later.
        """
        attached = [self.attached.pop(claim.token) for claim in call.claims if claim.token in self.attached]
        if not attached:
            return await self._store.messages.pop(call)
        if self._write_router.journal is None:
            return await self._run(attached, call)
        abandoned = False

        async def run() -> PopResult:
            popped = await self._run(attached, call)
            if abandoned:
                for claim in call.claims:
                    give_back(LeaseId(call.group_id, claim.token))
            return popped

        requests = [one.request for one in attached]
        done = await self._write_router.timeout.wait_for(run(), lambda: True, lambda: ack_backlogs(requests))
        if done is None:
            abandoned = True
            raise OutcomeUnknown("acks with a pop got no answer in time")
        popped: PopResult = done.result()
        return popped

    async def _run(self, attached: Sequence[AttachedAcks], call: PopCall) -> PopResult:
        popped: PopResult | None = None

        async def apply(acks: Sequence[LaneAck]) -> list[AckResult]:
            nonlocal popped
            acked, popped = await self._store.messages.ack_and_pop(acks, call)
            return acked

        outcomes = [one.outcomes for one in attached]
        plans = [(number, plan) for number, one in enumerate(attached) for plan in one.plans]
        flight = AckFlight([one.request for one in attached], outcomes, list(outcomes), plans)
        try:
            await self._acker.settle(flight, apply)
        except (Unavailable, BrokerFailed):
            if popped is None:
                raise
            return popped  # a later step failed, so all acks are repeated
        for number, one in enumerate(attached):
            if isinstance(flight.answers[number], Outcomes):
                one.pending = _indexes([plan for locked, plan in flight.locked if locked == number])
                self._telemetry.record(self._telemetry.ack, one.began, len(one.outcomes) - len(one.pending))
        if popped is None or (flight.in_parts and not any(popped.lanes)):  # the pop came before the last acks
            return await self._store.messages.pop(call)
        return popped


def _indexes(plans: Sequence[Plan]) -> list[int]:
    """Return the indexes of the items that the plans answer."""
    return sorted([index for plan in plans for index in plan.indexes])
