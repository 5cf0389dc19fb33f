"""Ack: merges verdicts on single messages into one ack per lane."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.ack_flight import AckFlight, Answers
from fairlane.broker.ack_plan import (
    LOST,
    UNRESOLVABLE,
    Plan,
    add_verdicts,
    after_a_late_nack,
    given_positions,
    lanes_of,
    outcome_of,
)
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.fan_in_watch import FanInWatch
from fairlane.broker.leases import Leases, bounds
from fairlane.broker.waiters import Waiters
from fairlane.errors import BrokerFailed, LaneLocked, Unavailable, as_outcome_unknown
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import AckItem, AckOutcome, Outcomes, UniformAcks
from fairlane.runtime.backoff import LockRetries
from fairlane.runtime.batcher import LateAnswer, decided_answer
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import AckResult, LaneAck
from fairlane.telemetry import Telemetry

if TYPE_CHECKING:
    from fairlane.broker.deferral.enqueue import Enqueuer
    from fairlane.broker.services.forwarder import Forwarder

Apply = Callable[[Sequence[LaneAck]], Awaitable[list[AckResult]]]

_DONE = AckOutcome(True, "")
_RELEASED = AckOutcome(True, "", lease_released=True)


class AckRequest(msgspec.Struct):
    tenant: str
    group: str
    items: Sequence[AckItem]


class Acker:
    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        leases: Leases,
        waiters: Waiters,
        awaited: Waiters,
        telemetry: Telemetry,
        enqueuer: Enqueuer,
        forwarder: Forwarder,
        fan_ins: FanInWatch,
    ) -> None:
        """Create the acker. `awaited` has the callers that wait for results."""
        self._enqueuer = enqueuer
        self._forwarder = forwarder
        self._fan_ins = fan_ins
        self._store = store
        self._catalogue = catalogue
        self._leases = leases
        self._waiters = waiters
        self._awaited = awaited
        self._telemetry = telemetry

    async def flush(self, requests: list[AckRequest]) -> Answers:
        """Settle the requests.

        A request with a locked lane fails with LaneLocked after a short wait, or with OutcomeUnknown if other lanes of
        it were settled.
        """
        flight = await self._begin(requests)
        for number, _ in flight.locked:
            flight.answers[number] = flight.locked_error(number)
        return flight.answers

    async def flush_or_wait(
        self, requests: list[AckRequest]
    ) -> Sequence[Sequence[AckOutcome] | Exception | LateAnswer]:
        """Settle the requests. A request with a locked lane is answered later, and the others do not wait for it."""
        flight = await self._begin(requests)
        answers: list[Sequence[AckOutcome] | Exception | LateAnswer] = list(flight.answers)
        if flight.locked:
            numbers = {number for number, _ in flight.locked}
            decided = asyncio.ensure_future(self._wait_for_lanes(flight))
            for number in numbers:
                answers[number] = asyncio.ensure_future(decided_answer(flight.answers, number, decided))
        return answers

    async def _begin(self, requests: list[AckRequest]) -> AckFlight:
        outcomes = [Outcomes(request.items) for request in requests]
        flight = AckFlight(requests, outcomes, list(outcomes))
        try:
            for number, request in enumerate(requests):
                plans = self.plan_uniform(request)
                if plans is None:
                    plans = await self.plan(request, outcomes[number])
                flight.unsettled += [(number, plan) for plan in plans]
            await self.settle(flight)
        except Unavailable as error:
            if not flight.applied:
                raise
            raise as_outcome_unknown(error) from error
        return flight

    async def _wait_for_lanes(self, flight: AckFlight) -> None:
        retries = LockRetries()
        while flight.locked and await retries.pause():
            flight.unsettled, flight.locked = flight.locked, []
            await self.settle(flight)
        for number, _ in flight.locked:
            flight.answers[number] = flight.locked_error(number)

    async def settle(self, flight: AckFlight, apply: Apply | None = None) -> None:
        """Apply the plans of a flight. `apply` replaces the verb of the store for the first acks."""
        deferred: list[tuple[int, Plan]] = []
        while now := flight.unsettled:
            flight.unsettled = []
            if len(now) > 1:
                now, flight.unsettled = _one_per_lane(now)
            try:
                results: Sequence[AckResult | BrokerFailed] = await (apply or self._store.messages.ack)(
                    [plan.ack for _, plan in now]
                )
                apply = None
            except BrokerFailed as error:
                results = [error] if len(now) == 1 else await self._apply_alone(now)
            for (number, plan), result in zip(now, results, strict=True):
                if isinstance(result, BrokerFailed):
                    flight.answers[number] = result
                elif result.state == "locked":
                    flight.mark_locked(number, plan)
                elif result.state == "operations_ahead":
                    deferred.append((number, plan))
                else:
                    flight.applied.add(number)
                    items = flight.requests[number].items
                    if plan.ack.nacks and (rest := after_a_late_nack(plan, result, items)) is not None:
                        flight.unsettled.append((number, rest))
                        flight.in_parts = True
                    if not self.answer(plan, result, flight.outcomes[number]):
                        await self.answer_each(plan, result, items, flight.outcomes[number])
        if deferred:
            await self._defer(flight, deferred)

    async def _apply_alone(self, some: list[tuple[int, Plan]]) -> list[AckResult | BrokerFailed]:
        """Apply acks one by one after a defect, so that only the acks that cause it fail."""
        results: list[AckResult | BrokerFailed] = []
        for _, plan in some:
            try:
                results += await self._store.messages.ack([plan.ack])
            except BrokerFailed as error:
                results.append(error)
        return results

    async def _defer(self, flight: AckFlight, plans: list[tuple[int, Plan]]) -> None:
        """Turn acks into operations if their lanes have open ones, because an ack must not overtake a nack."""
        requests, answers = flight.requests, flight.answers
        parts = [
            msgspec.structs.replace(requests[number], items=[requests[number].items[index] for index in plan.indexes])
            for number, plan in plans
        ]
        enqueued = await self._enqueuer.acks(parts, "maintaining_order")
        flight.applied.update(
            number for (number, _), outcomes in zip(plans, enqueued, strict=True) if not isinstance(outcomes, Exception)
        )
        for (number, plan), outcomes in zip(plans, enqueued, strict=True):
            known = answers[number]
            if isinstance(outcomes, LaneLocked):
                answers[number] = flight.locked_error(number)
            elif isinstance(outcomes, Exception):
                answers[number] = outcomes
            elif isinstance(known, Outcomes):
                for index, outcome in zip(plan.indexes, outcomes, strict=True):
                    known.add([index], outcome)

    def plan_uniform(self, request: AckRequest) -> list[Plan] | None:
        """Plan acks that complete messages of leases in memory. Returns None if the fast path does not apply."""
        items = request.items
        if type(items) is not UniformAcks or items.verdict.status != "completed":
            return None
        plans = []
        for (partition, lease), indexes in items.lanes.items():
            found = self._catalogue.by_id.get((request.tenant, partition))
            group = self._catalogue.groups.get((found.queue_id, request.group)) if found is not None else None
            known = self._leases.known(lease, partition, items, indexes) if lease is not None else None
            if found is None or group is None or known is None or known[0].group_id != group.id:
                return None
            (group_id, token), positions = known
            ack = LaneAck(partition=partition, group_id=group_id, token=token, unordered=found.unordered)
            if type(positions) is range:
                ack.cumulative = items.verdict.cumulative and not found.unordered
                ack.done = [(0 if ack.cumulative else positions.start, positions.stop)]
            else:
                add_verdicts(ack, items, indexes, positions)
            plans.append(Plan(ack, indexes, positions, found.queue_id, lease))
        return plans

    async def plan(self, request: AckRequest, outcomes: Outcomes) -> list[Plan]:
        """Return acks of lanes for all items that name a message. The others are answered in `outcomes`."""
        plans = []
        items = request.items
        for (partition, named), indexes in lanes_of(items).items():
            found = await self._catalogue.partition(request.tenant, partition)
            group_id = await self._catalogue.group_id(found.queue_id, request.group) if found else None
            lease = LeaseId.parse(named)
            if found and lease and lease.group_id != group_id:
                # Another broker may have deleted and created the group.
                self._catalogue.forget_group(found.queue_id, request.group)
                group_id = await self._catalogue.group_id(found.queue_id, request.group)
            if named is not None and (lease is None or lease.group_id != group_id):
                outcomes.add(indexes, LOST)
                continue
            if found is None or group_id is None:
                outcomes.add(indexes, UNRESOLVABLE)
                continue
            known, positions = await self._resolve(items, (partition, named), indexes, lease, unordered=found.unordered)
            if len(known) < len(indexes):
                unknown = sorted(set(indexes).difference(known))
                outcomes.add(unknown, await self._unknown(partition, lease))
            if known:
                token = lease.token if lease else None
                ack = LaneAck(partition=partition, group_id=group_id, token=token, unordered=found.unordered)
                add_verdicts(ack, items, known, positions)
                plans.append(Plan(ack, known, positions, found.queue_id, named))
        return plans

    async def _unknown(self, partition: PartitionId, lease: LeaseId | None) -> AckOutcome:
        """Return the outcome of items that name no message of the lease."""
        if lease is None:
            return UNRESOLVABLE
        known = any(leased.partition == partition for leased in await self._store.messages.leased(lease))
        return UNRESOLVABLE if known else LOST

    async def _resolve(
        self,
        items: Sequence[AckItem],
        lane: tuple[PartitionId, str | None],
        indexes: Sequence[int],
        lease: LeaseId | None,
        *,
        unordered: bool,
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Return the items that name a message of the lease, or one that was finished before, and their positions."""
        given, (partition, _) = given_positions(items, lane, indexes), lane
        found: dict[int, int] = {}
        if given:
            located = indexes
            if len(given) < len(indexes):
                located = [index for index in indexes if items[index].position is not None]
            known, positions = await self._within(located, given, lease, partition)
            if len(known) == len(indexes):
                return known, positions
            found = dict(zip(known, positions, strict=True))
        ids = items.transaction_ids if isinstance(items, UniformAcks) else [item.transaction_id for item in items]
        leased = await self._leases.positions(lease, partition) if lease else {}
        for index in indexes:
            # In an unordered queue the lease may have held and finished it, in any order. The store knows.
            wanted = items[index].position
            if index in found or (wanted is not None and not unordered):
                continue
            position = leased.get(ids[index])
            if position is None:
                position = await self._store.messages.find(partition, ids[index])
                if position is not None and leased and not unordered and position > max(leased.values()):
                    position = None  # stored, but not part of this lease
            if position is not None and wanted in (None, position):
                found[index] = position
        known = sorted(found)
        return known, [found[index] for index in known]

    async def _within(
        self, indexes: Sequence[int], given: Sequence[int], lease: LeaseId | None, partition: PartitionId
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Return the items whose given positions are in the lease, and those positions."""
        spans = await self._leases.holds(lease, partition) if lease else []
        least, most = bounds(given)
        # If the lease has ended, the store knows if these repeat its last acks.
        if not spans or any(least in span and most in span for span in spans):
            return indexes, given
        holds = set().union(*spans)
        found = {index: position for index, position in zip(indexes, given, strict=True) if position in holds}
        return list(found), list(found.values())

    def answer(self, plan: Plan, acked: AckResult, outcomes: Outcomes) -> bool:
        """Count applied items, and wake polls if the lane is ready. Returns True if all were answered alike."""
        ack, positions = plan.ack, plan.positions
        if acked.state == "ok":
            self._telemetry.queue(plan.queue_id).acks += len(plan.indexes)
            if ack.nacks or ack.dead_letters:
                self._count_failed(plan, acked)
            if ack.results and not self._store.sole_broker:
                self._store.hint(plan.queue_id)
            if plan.queue_id in self._awaited.parked:
                self._wake_awaited(plan)
            if plan.queue_id in self._fan_ins.queues:
                self._fan_ins.touch(ack.partition)
        if acked.released or (acked.state == "lost" and not ack.unordered):
            self.released(plan)
            for outcome in plan.answered if acked.released else ():
                outcome.lease_released = outcome.success and not outcome.noop
        if acked.state != "ok" or acked.cancelled or acked.finished or acked.lost or acked.died or ack.dead_letters:
            return False
        if not ack.unordered:
            least, most = bounds(positions)
            if ack.nacks or least < acked.before or most >= acked.limit:
                return False
        outcomes.add(plan.indexes, _RELEASED if acked.released else _DONE)
        return True

    async def answer_each(self, plan: Plan, acked: AckResult, items: Sequence[AckItem], outcomes: Outcomes) -> None:
        """Answer each item. An item that was finished before gets its stored result."""
        ack = plan.ack
        for index, position in plan.items:
            outcome = outcome_of(items[index], position, ack, acked)
            if outcome.noop:
                outcome.result = await self._store.groups.result(ack.group_id, ack.partition, position)
            outcomes.add([index], outcome)
            plan.answered.append(outcome)

    def _wake_awaited(self, plan: Plan) -> None:
        """Wake callers that wait for results of the lane, and those that do not know the lane of their message yet."""
        for key in ((plan.ack.group_id, str(plan.ack.partition)), (0, "")):
            self._awaited.wake_line(plan.queue_id, key)

    def _count_failed(self, plan: Plan, acked: AckResult) -> None:
        """Count failed attempts, and report dead letters, which may have to be forwarded."""
        ack = plan.ack
        self._telemetry.queue(plan.queue_id).failed += sum(nack.charge for nack in ack.nacks)
        dead = len(acked.died) if ack.unordered else acked.dead + len(ack.dead_letters)
        if dead:
            self._telemetry.record_dead_letters(plan.queue_id, dead)
            self._forwarder.wake()

    def resolve(self, plan: Plan, acked: AckResult, items: Sequence[AckItem], outcomes: Outcomes) -> Plan | None:
        """Answer each item without a query. Returns the plan of the rest after a late nack, or None."""
        rest = after_a_late_nack(plan, acked, items)
        for index, position in plan.items:
            outcomes.add([index], outcome_of(items[index], position, plan.ack, acked))
        return rest

    def released(self, plan: Plan) -> None:
        """Wake polls, here and at other brokers, because a lane may be ready."""
        if plan.lease is not None:
            self._leases.forget(plan.lease, plan.ack.partition)
        if plan.queue_id in self._waiters.parked:
            self._waiters.wake(plan.queue_id, 1, group_id=plan.ack.group_id)
        if not self._store.sole_broker:
            self._store.hint(plan.queue_id)


def _one_per_lane(unsettled: list[tuple[int, Plan]]) -> tuple[list[tuple[int, Plan]], list[tuple[int, Plan]]]:
    """Split plans so that an ordered lane gets one ack per call; a second ack of the lane waits for the first."""
    now: list[tuple[int, Plan]] = []
    others: list[tuple[int, Plan]] = []
    lanes: set[tuple[PartitionId, int]] = set()
    for number, plan in unsettled:
        second = not plan.ack.unordered and plan.lane in lanes
        (others if second else now).append((number, plan))
        lanes.add(plan.lane)
    return now, others
