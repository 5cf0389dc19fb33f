"""Ack: what consumers say of single messages becomes one settlement per lane."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from uuid import UUID

import msgspec

from fairlane.engine.batcher import LateAnswer
from fairlane.engine.catalogue import Catalogue
from fairlane.engine.leases import Leases
from fairlane.engine.settlement import (
    LOCKED,
    LOST,
    UNRESOLVABLE,
    Plan,
    after_a_late_nack,
    bounds,
    given_positions,
    lanes_of,
    said,
    settled_outcome,
)
from fairlane.engine.unknown import still_unknown
from fairlane.engine.verdicts import outcome_of
from fairlane.engine.waiters import Waiters
from fairlane.errors import BrokerFailed, LaneLocked, Unavailable
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import AckItem, AckOutcome, OperationReason, Outcomes
from fairlane.store.base import Store
from fairlane.store.values import Settled, Settlement, Verdicts
from fairlane.telemetry import Telemetry

Answers = list[Sequence[AckOutcome] | Exception]

LOCKED_SECONDS = 10.0
"""For how long a locked lane is waited for where there is no journal."""
_LOCKED_PAUSE_SECONDS = 0.1


class AckRequest(msgspec.Struct):
    tenant: str
    group: str
    items: Sequence[AckItem]
    operation_id: UUID | None = None
    """Under which it was accepted before, and waits again if it must; then all its items are of one lease and lane."""


class _Acking:
    """Requests on their way into the store, as settlements of lanes."""

    def __init__(self, requests: list[AckRequest]) -> None:
        self.requests = requests
        self.outcomes = [Outcomes(request.items) for request in requests]
        self.answers: Answers = list(self.outcomes)
        self.unsettled: list[tuple[int, Plan]] = []
        """What is still to be settled: the number of its request, and the plan."""
        self.locked: list[tuple[int, Plan]] = []
        self.applied: set[int] = set()
        """Requests of which something was settled."""

    def put_off(self, number: int, plan: Plan) -> None:
        """Somebody else holds its lane. What is to be settled in the same lane is put off too."""
        lane = _lane(plan)
        self.locked.append((number, plan))
        self.locked += [one for one in self.unsettled if _lane(one[1]) == lane]
        self.unsettled = [one for one in self.unsettled if _lane(one[1]) != lane]

    def locked_requests(self) -> set[int]:
        return {number for number, _ in self.locked}

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
        telemetry: Telemetry,
        enqueue: Callable[[list[AckRequest], OperationReason], Awaitable[list[Sequence[AckOutcome] | Exception]]],
    ) -> None:
        """`enqueue` makes acks operations."""
        self._enqueue = enqueue
        self._store = store
        self._catalogue = catalogue
        self._leases = leases
        self._waiters = waiters
        self._telemetry = telemetry
        self.dead_lettered: Callable[[], None] = lambda: None
        """Called when messages were dead-lettered."""

    async def flush(self, requests: list[AckRequest]) -> Answers:
        """A request that meets a locked lane gets LaneLocked, without waiting for it long; OutcomeUnknown if it named
        others beside it."""
        acking = await self._begin(requests)
        for number in acking.locked_requests():
            acking.answers[number] = acking.locked_error(number)
        return acking.answers

    async def flush_or_wait(
        self, requests: list[AckRequest]
    ) -> Sequence[Sequence[AckOutcome] | Exception | LateAnswer]:
        """A request that meets a locked lane is answered later, and no other waits for that."""
        acking = await self._begin(requests)
        answers: list[Sequence[AckOutcome] | Exception | LateAnswer] = list(acking.answers)
        if acking.locked:
            numbers = acking.locked_requests()
            decided = asyncio.ensure_future(self._wait_for_lanes(acking))
            for number in numbers:
                answers[number] = asyncio.ensure_future(_answer(acking, number, decided))
        return answers

    async def _begin(self, requests: list[AckRequest]) -> _Acking:
        acking = _Acking(requests)
        try:
            for number, request in enumerate(requests):
                plans = await self.plan(request, acking.outcomes[number], in_transaction=False)
                acking.unsettled += [(number, plan) for plan in plans]
            await self._settle_all(acking)
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
            await self._settle_all(acking)
        for number in acking.locked_requests():
            acking.answers[number] = acking.locked_error(number)

    async def _settle_all(self, acking: _Acking) -> None:
        deferred: list[tuple[int, Plan]] = []
        while acking.unsettled:
            # A lane takes one settlement a call; a second one of the same lane waits for the first.
            now, acking.unsettled = _one_per_lane(acking.unsettled)
            for (number, plan), result in zip(now, await self._settle(acking, now), strict=True):
                items, outcomes = acking.requests[number].items, acking.outcomes[number]
                if isinstance(result, BrokerFailed):
                    acking.answers[number] = result
                elif result.state == "locked":
                    acking.put_off(number, plan)
                elif result.state == "operations_ahead":
                    deferred.append((number, plan))
                else:
                    acking.applied.add(number)
                    rest = after_a_late_nack(plan, result, items)
                    if rest is not None:
                        acking.unsettled.append((number, rest))
                    await self.answer(plan, result, items, outcomes)
        if deferred:
            await self._defer(acking.requests, deferred, acking.answers)

    async def _settle(self, acking: _Acking, some: list[tuple[int, Plan]]) -> list[Settled | BrokerFailed]:
        """Together; after a defect one by one, so that what it met fails alone."""
        try:
            return list(await self._store.messages.ack([plan.settlement for _, plan in some]))
        except BrokerFailed as error:
            if len(some) == 1:
                return [error]
        return [result for one in some for result in await self._settle(acking, [one])]

    async def _defer(
        self, requests: list[AckRequest], plans: list[tuple[int, Plan]], answers: list[Sequence[AckOutcome] | Exception]
    ) -> None:
        """Acks of these lanes wait as operations: an ack that overtook a nack would finish what failed."""
        parts = [
            msgspec.structs.replace(requests[number], items=[requests[number].items[index] for index in plan.indexes])
            for number, plan in plans
        ]
        for (number, plan), enqueued in zip(plans, await self._enqueue(parts, "maintaining_order"), strict=True):
            known = answers[number]
            if isinstance(enqueued, Exception):
                answers[number] = enqueued
            elif isinstance(known, Outcomes):
                for index, outcome in zip(plan.indexes, enqueued, strict=True):
                    known.say([index], outcome)

    async def plan(self, request: AckRequest, outcomes: Outcomes, *, in_transaction: bool) -> list[Plan]:
        """Settlements for all items that name a message; the others are answered in `outcomes`."""
        plans = []
        items = request.items
        for (partition, named), indexes in lanes_of(items).items():
            found = await self._catalogue.partition(partition)
            group_id = await self._catalogue.group_id(found.queue_id, request.group) if found else None
            lease = LeaseId.parse(named) if isinstance(named, str) else named
            if found and lease and lease.group_id != group_id:
                # Another broker may have made the group anew.
                self._catalogue.forget_group(found.queue_id, request.group)
                group_id = await self._catalogue.group_id(found.queue_id, request.group)
            if named is not None and (lease is None or lease.group_id != group_id):
                outcomes.say(indexes, LOST)
                continue
            if found is None or group_id is None:
                outcomes.say(indexes, UNRESOLVABLE)
                continue
            known, positions = await self._resolve(items, indexes, partition, lease)
            if len(known) < len(indexes):
                unknown = sorted(set(indexes).difference(known))
                outcomes.say(unknown, await self._unknown(partition, lease))
            if known:
                settlement = said(items, known, positions, unordered=found.unordered, in_transaction=in_transaction)
                settlement.partition, settlement.group_id = partition, group_id
                settlement.token = lease.token if lease else None
                plans.append(Plan(settlement, known, positions, found.queue_id))
        return plans

    async def _unknown(self, partition: PartitionId, lease: LeaseId | None) -> AckOutcome:
        """What is said of items that name no message of the lease."""
        if lease is None:
            return UNRESOLVABLE
        known = any(leased.partition == partition for leased in await self._store.messages.leased(lease))
        return UNRESOLVABLE if known else LOST

    async def _resolve(
        self, items: Sequence[AckItem], indexes: Sequence[int], partition: PartitionId, lease: LeaseId | None
    ) -> tuple[Sequence[int], Sequence[int]]:
        """The items that name a message of the lease, or one that was finished before, and the positions of those."""
        given = given_positions(items, indexes)
        if len(given) == len(indexes):
            spans = await self._leases.holds(lease, partition) if lease else []
            least, most = bounds(given)
            # Of a lease that ended the store says whether these were its last acks, repeated.
            if not spans or any(least in span and most in span for span in spans):
                return indexes, given
            holds = set().union(*spans)
            if holds.issuperset(given):
                return indexes, given
            found = {index: position for index, position in zip(indexes, given, strict=True) if position in holds}
            return list(found), list(found.values())
        found = {}
        leased = await self._leases.positions(lease, partition) if lease else {}
        for index in indexes:
            position = leased.get(items[index].transaction_id)
            if position is None:
                position = await self._store.messages.find(partition, items[index].transaction_id)
                if position is not None and leased and position > max(leased.values()):
                    position = None  # stored, but not what this lease was given
            if position is not None:
                found[index] = position
        return list(found), list(found.values())

    async def answer(self, plan: Plan, settled: Settled, items: Sequence[AckItem], outcomes: Outcomes) -> None:
        """Tell each item what became of it, and waiting polls that the lane may be ready."""
        settlement = plan.settlement
        if isinstance(settlement, Verdicts):
            await self._answer_each(plan, settlement, settled, items, outcomes)
            return
        self.count(plan, settled)
        plain = (
            settled.state == "ok" and settlement.nack is None and not settlement.dead_letters and not settled.finished
        )
        least, most = bounds(plan.positions)
        if plain and least >= settled.before and most < settled.limit:
            outcomes.say(plan.indexes, AckOutcome(True, "", lease_released=settled.released))
        else:
            await self._answer_all(plan, settlement, settled, items, outcomes)
        if settled.state == "lost" or settled.released:
            self.released(plan)

    async def _answer_all(
        self,
        plan: Plan,
        settlement: Settlement,
        settled: Settled,
        items: Sequence[AckItem],
        outcomes: Outcomes,
    ) -> None:
        for index, position in plan.items:
            outcome = settled_outcome(items[index], position, settlement, settled)
            if outcome.noop:
                outcome.result = await self._store.groups.result(settlement.group_id, settlement.partition, position)
            outcomes.say([index], outcome)

    async def _answer_each(
        self,
        plan: Plan,
        said: Verdicts,
        settled: Settled,
        items: Sequence[AckItem],
        outcomes: Outcomes,
    ) -> None:
        self.count(plan, settled)
        if settled.state == "ok" and not (settled.lost or settled.finished or settled.died):
            outcomes.say(plan.indexes, AckOutcome(True, "", lease_released=settled.released))
        else:
            for index, position in plan.items:
                outcome = outcome_of(items[index], position, settled)
                if outcome.noop:
                    outcome.result = await self._store.groups.result(said.group_id, said.partition, position)
                outcomes.say([index], outcome)
        if settled.released:
            self.released(plan)

    def count(self, plan: Plan, settled: Settled) -> None:
        """What was applied, for whoever looks at numbers; and dead letters may have to be forwarded."""
        if settled.state != "ok":
            return
        counts, said = self._telemetry.queue(plan.queue_id), plan.settlement
        counts.acks += len(plan.indexes)
        if isinstance(said, Verdicts):
            counts.failed += sum(nack.charge for nack in said.nacks)
            dead = len(settled.died)
        else:
            counts.failed += said.nack is not None and said.nack.charge
            dead = settled.dead + len(said.dead_letters)
        if dead:
            self._telemetry.gave_up(plan.queue_id, dead)
            self.dead_lettered()

    def resolve(self, plan: Plan, settled: Settled, items: Sequence[AckItem], outcomes: Outcomes) -> Plan | None:
        """Tell each item what became of it, without looking at the store; the plan of what is left behind a nack that
        came too late."""
        rest = after_a_late_nack(plan, settled, items)
        for index, position in plan.items:
            if isinstance(plan.settlement, Verdicts):
                outcomes.say([index], outcome_of(items[index], position, settled))
            else:
                outcomes.say([index], settled_outcome(items[index], position, plan.settlement, settled))
        return rest

    def released(self, plan: Plan) -> None:
        """A lane may be ready: tell waiting polls, here and at other brokers."""
        if plan.settlement.token is not None:
            self._leases.forget(plan.settlement.token, plan.settlement.partition)
        self._waiters.wake(plan.queue_id, 1, group_id=plan.settlement.group_id)
        self._store.hint(plan.queue_id)


def _lane(plan: Plan) -> tuple[PartitionId, int]:
    return plan.settlement.partition, plan.settlement.group_id


def _one_per_lane(unsettled: list[tuple[int, Plan]]) -> tuple[list[tuple[int, Plan]], list[tuple[int, Plan]]]:
    now: dict[tuple[PartitionId, int], tuple[int, Plan]] = {}
    each: list[tuple[int, Plan]] = []
    others = []
    for entry in unsettled:
        if isinstance(entry[1].settlement, Verdicts):
            each.append(entry)
            continue
        lane = _lane(entry[1])
        if lane in now:
            others.append(entry)
        else:
            now[lane] = entry
    return [*now.values(), *each], others
