"""Ack: verdicts on single messages become one ack per lane."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.ack_plan import (
    LOCKED,
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
from fairlane.broker.leases import Leases, bounds
from fairlane.broker.unknown import still_unknown
from fairlane.broker.waiters import Waiters
from fairlane.errors import BrokerFailed, LaneLocked, Unavailable
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import AckItem, AckOutcome, Alike, Outcomes
from fairlane.runtime.batcher import LateAnswer
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import AckResult, LaneAck
from fairlane.telemetry import Telemetry

if TYPE_CHECKING:
    from fairlane.broker.deferral.enqueue import Enqueuer

Answers = list[Sequence[AckOutcome] | Exception]

LOCKED_SECONDS = 10.0
"""For how long a locked lane is waited for where there is no journal."""
_LOCKED_PAUSE_SECONDS = 0.1
_DONE = AckOutcome(True, "")
_RELEASED = AckOutcome(True, "", lease_released=True)


class AckRequest(msgspec.Struct):
    tenant: str
    group: str
    items: Sequence[AckItem]


class _Acking(msgspec.Struct):
    """Ack requests on their way into the store, as acks of lanes."""

    requests: list[AckRequest]
    outcomes: list[Outcomes]
    answers: Answers
    unsettled: list[tuple[int, Plan]] = []
    """What is still to be settled: the number of its request, and the plan."""
    locked: list[tuple[int, Plan]] = []
    applied: set[int] = set()
    """Requests of which something was settled."""

    def put_off(self, number: int, plan: Plan) -> None:
        """Somebody else holds its lane. What is to be settled in the same lane is put off too."""
        self.locked.append((number, plan))
        self.locked += [one for one in self.unsettled if one[1].lane == plan.lane]
        self.unsettled = [one for one in self.unsettled if one[1].lane != plan.lane]

    def locked_error(self, number: int) -> Unavailable:
        error = LaneLocked(LOCKED)
        return still_unknown(error) if number in self.applied else error


async def _answer(acking: _Acking, number: int, decided: Awaitable[None]) -> Sequence[AckOutcome]:
    """What became of a request, once that is decided."""
    await decided
    answer = acking.answers[number]
    if isinstance(answer, Exception):
        raise answer
    return answer


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
    ) -> None:
        """In `awaited` wait those who ask for results."""
        self._enqueuer = enqueuer
        self._store = store
        self._catalogue = catalogue
        self._leases = leases
        self._waiters = waiters
        self._awaited = awaited
        self._telemetry = telemetry
        self.dead_lettered: Callable[[], None] = lambda: None
        """Called when messages were dead-lettered."""

    async def flush(self, requests: list[AckRequest]) -> Answers:
        """A request that meets a locked lane gets LaneLocked, without waiting for it long; OutcomeUnknown if it named
        others beside it."""
        acking = await self._begin(requests)
        for number, _ in acking.locked:
            acking.answers[number] = acking.locked_error(number)
        return acking.answers

    async def flush_or_wait(
        self, requests: list[AckRequest]
    ) -> Sequence[Sequence[AckOutcome] | Exception | LateAnswer]:
        """A request that meets a locked lane is answered later, and no other waits for that."""
        acking = await self._begin(requests)
        answers: list[Sequence[AckOutcome] | Exception | LateAnswer] = list(acking.answers)
        if acking.locked:
            numbers = {number for number, _ in acking.locked}
            decided = asyncio.ensure_future(self._wait_for_lanes(acking))
            for number in numbers:
                answers[number] = asyncio.ensure_future(_answer(acking, number, decided))
        return answers

    async def _begin(self, requests: list[AckRequest]) -> _Acking:
        outcomes = [Outcomes(request.items) for request in requests]
        acking = _Acking(requests, outcomes, list(outcomes))
        try:
            for number, request in enumerate(requests):
                plans = self._usual(request)
                if plans is None:
                    plans = await self.plan(request, outcomes[number])
                acking.unsettled += [(number, plan) for plan in plans]
            await self._settle(acking)
        except Unavailable as error:
            if not acking.applied:
                raise
            raise still_unknown(error) from error
        return acking

    async def _wait_for_lanes(self, acking: _Acking) -> None:
        give_up_at = monotonic() + LOCKED_SECONDS
        while acking.locked and monotonic() < give_up_at:
            await asyncio.sleep(_LOCKED_PAUSE_SECONDS)
            acking.unsettled, acking.locked = acking.locked, []
            await self._settle(acking)
        for number, _ in acking.locked:
            acking.answers[number] = acking.locked_error(number)

    async def _settle(self, acking: _Acking) -> None:
        deferred: list[tuple[int, Plan]] = []
        while now := acking.unsettled:
            acking.unsettled = []
            if len(now) > 1:
                now, acking.unsettled = _one_per_lane(now)
            try:
                results: Sequence[AckResult | BrokerFailed] = await self._store.messages.ack(
                    [plan.ack for _, plan in now]
                )
            except BrokerFailed as error:
                results = [error] if len(now) == 1 else await self._apply_alone(now)
            for (number, plan), result in zip(now, results, strict=True):
                if isinstance(result, BrokerFailed):
                    acking.answers[number] = result
                elif result.state == "locked":
                    acking.put_off(number, plan)
                elif result.state == "operations_ahead":
                    deferred.append((number, plan))
                else:
                    acking.applied.add(number)
                    items = acking.requests[number].items
                    if plan.ack.nacks and (rest := after_a_late_nack(plan, result, items)) is not None:
                        acking.unsettled.append((number, rest))
                    if not self.answer(plan, result, acking.outcomes[number]):
                        await self.answer_each(plan, result, items, acking.outcomes[number])
        if deferred:
            await self._defer(acking.requests, deferred, acking.answers)

    async def _apply_alone(self, some: list[tuple[int, Plan]]) -> list[AckResult | BrokerFailed]:
        """One by one after a defect, so that what it met fails alone."""
        results: list[AckResult | BrokerFailed] = []
        for _, plan in some:
            try:
                results += await self._store.messages.ack([plan.ack])
            except BrokerFailed as error:
                results.append(error)
        return results

    async def _defer(self, requests: list[AckRequest], plans: list[tuple[int, Plan]], answers: Answers) -> None:
        """Acks of these lanes wait as operations: an ack that overtook a nack would finish what failed."""
        parts = [
            msgspec.structs.replace(requests[number], items=[requests[number].items[index] for index in plan.indexes])
            for number, plan in plans
        ]
        for (number, plan), enqueued in zip(plans, await self._enqueuer.acks(parts, "maintaining_order"), strict=True):
            known = answers[number]
            if isinstance(enqueued, Exception):
                answers[number] = enqueued
            elif isinstance(known, Outcomes):
                for index, outcome in zip(plan.indexes, enqueued, strict=True):
                    known.add([index], outcome)

    def _usual(self, request: AckRequest) -> list[Plan] | None:
        """The plans of acks which say of messages of one lease that they are done, if all about them is known here;
        None if it takes a closer look."""
        items = request.items
        if type(items) is not Alike or items.verdict.status != "completed":
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
                ack.done = [
                    (0 if items.verdict.cumulative and not found.unordered else positions.start, positions.stop)
                ]
            else:
                add_verdicts(ack, items, indexes, positions)
            plans.append(Plan(ack, indexes, positions, found.queue_id, lease))
        return plans

    async def plan(self, request: AckRequest, outcomes: Outcomes) -> list[Plan]:
        """Acks of lanes for all items that name a message; the others are answered in `outcomes`."""
        plans = []
        items = request.items
        for (partition, named), indexes in lanes_of(items).items():
            found = await self._catalogue.partition(request.tenant, partition)
            group_id = await self._catalogue.group_id(found.queue_id, request.group) if found else None
            lease = LeaseId.parse(named)
            if found and lease and lease.group_id != group_id:
                # Another broker may have made the group anew.
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
        """What is said of items that name no message of the lease."""
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
        ids = items.transaction_ids if isinstance(items, Alike) else [item.transaction_id for item in items]
        leased = await self._leases.positions(lease, partition) if lease else {}
        for index in indexes:
            # In an unordered queue the lease may have held it and finished it, in any order: the store knows.
            wanted = items[index].position
            if index in found or (wanted is not None and not unordered):
                continue
            position = leased.get(ids[index])
            if position is None:
                position = await self._store.messages.find(partition, ids[index])
                if position is not None and leased and not unordered and position > max(leased.values()):
                    position = None  # stored, but not what this lease was given
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
        # Of a lease that ended the store says whether these were its last acks, repeated.
        if not spans or any(least in span and most in span for span in spans):
            return indexes, given
        holds = set().union(*spans)
        found = {index: position for index, position in zip(indexes, given, strict=True) if position in holds}
        return list(found), list(found.values())

    def answer(self, plan: Plan, acked: AckResult, outcomes: Outcomes) -> bool:
        """Count what was applied, and tell waiting polls that the lane may be ready. Whether all items came to the same
        good end, as is usual, and were told; otherwise each wants an answer of its own."""
        ack, positions = plan.ack, plan.positions
        if acked.state == "ok":
            self._telemetry.queue(plan.queue_id).acks += len(plan.indexes)
            if ack.nacks or ack.dead_letters:
                self._count_failed(plan, acked)
            if ack.results and not self._store.alone:
                self._store.hint(plan.queue_id)
            if plan.queue_id in self._awaited.parked:
                self._tell_awaited(plan)
        if acked.released or (acked.state == "lost" and not ack.unordered):
            self.released(plan)
            for outcome in plan.answered if acked.released else ():
                outcome.lease_released = outcome.success and not outcome.noop
        if acked.state != "ok" or acked.finished or acked.lost or acked.died or ack.dead_letters:
            return False
        if not ack.unordered:
            least, most = bounds(positions)
            if ack.nacks or least < acked.before or most >= acked.limit:
                return False
        outcomes.add(plan.indexes, _RELEASED if acked.released else _DONE)
        return True

    async def answer_each(self, plan: Plan, acked: AckResult, items: Sequence[AckItem], outcomes: Outcomes) -> None:
        """Tell each item what became of it; of one that was done before also the result that was kept then."""
        ack = plan.ack
        for index, position in plan.items:
            outcome = outcome_of(items[index], position, ack, acked)
            if outcome.noop:
                outcome.result = await self._store.groups.result(ack.group_id, ack.partition, position)
            outcomes.add([index], outcome)
            plan.answered.append(outcome)

    def _tell_awaited(self, plan: Plan) -> None:
        """Wake who waits for results of the lane, and who does not know yet in which lane their message is."""
        for key in ((plan.ack.group_id, str(plan.ack.partition)), (0, "")):
            self._awaited.wake_line(plan.queue_id, key)

    def _count_failed(self, plan: Plan, acked: AckResult) -> None:
        """Dead letters may have to be forwarded."""
        ack = plan.ack
        self._telemetry.queue(plan.queue_id).failed += sum(nack.charge for nack in ack.nacks)
        dead = len(acked.died) if ack.unordered else acked.dead + len(ack.dead_letters)
        if dead:
            self._telemetry.gave_up(plan.queue_id, dead)
            self.dead_lettered()

    def resolve(self, plan: Plan, acked: AckResult, items: Sequence[AckItem], outcomes: Outcomes) -> Plan | None:
        """Tell each item what became of it, without looking at the store; the plan of what is left behind a nack that
        came too late."""
        rest = after_a_late_nack(plan, acked, items)
        for index, position in plan.items:
            outcomes.add([index], outcome_of(items[index], position, plan.ack, acked))
        return rest

    def released(self, plan: Plan) -> None:
        """A lane may be ready: tell waiting polls, here and at other brokers."""
        if plan.lease is not None:
            self._leases.forget(plan.lease, plan.ack.partition)
        if plan.queue_id in self._waiters.parked:
            self._waiters.wake(plan.queue_id, 1, group_id=plan.ack.group_id)
        if not self._store.alone:
            self._store.hint(plan.queue_id)


def _one_per_lane(unsettled: list[tuple[int, Plan]]) -> tuple[list[tuple[int, Plan]], list[tuple[int, Plan]]]:
    """An ordered lane takes one ack a call; a second one of the same lane waits for the first."""
    now: list[tuple[int, Plan]] = []
    others: list[tuple[int, Plan]] = []
    lanes: set[tuple[PartitionId, int]] = set()
    for number, plan in unsettled:
        second = not plan.ack.unordered and plan.lane in lanes
        (others if second else now).append((number, plan))
        lanes.add(plan.lane)
    return now, others
