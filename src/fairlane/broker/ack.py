"""Ack: verdicts on single messages become one ack per lane."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from uuid import UUID

import msgspec

from fairlane.broker.ack_plan import (
    LOCKED,
    LOST,
    UNRESOLVABLE,
    Plan,
    after_a_late_nack,
    bounds,
    given_positions,
    lane_ack,
    lanes_of,
    ordered_outcome,
)
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.leases import Leases
from fairlane.broker.unknown import still_unknown
from fairlane.broker.unordered_ack import unordered_outcome
from fairlane.broker.waiters import Waiters
from fairlane.errors import BrokerFailed, LaneLocked, Unavailable
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import AckItem, AckOutcome, Alike, OperationReason, Outcomes
from fairlane.runtime.batcher import LateAnswer
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import AckResult, OrderedAck, UnorderedAck
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
    """Ack requests on their way into the store, as acks of lanes."""

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
            await self._apply_all(acking)
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
            await self._apply_all(acking)
        for number in acking.locked_requests():
            acking.answers[number] = acking.locked_error(number)

    async def _apply_all(self, acking: _Acking) -> None:
        deferred: list[tuple[int, Plan]] = []
        while acking.unsettled:
            # A lane takes one ack a call; a second one of the same lane waits for the first.
            now, acking.unsettled = _one_per_lane(acking.unsettled)
            for (number, plan), result in zip(now, await self._apply(acking, now), strict=True):
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

    async def _apply(self, acking: _Acking, some: list[tuple[int, Plan]]) -> list[AckResult | BrokerFailed]:
        """Together; after a defect one by one, so that what it met fails alone."""
        try:
            return list(await self._store.messages.ack([plan.ack for _, plan in some]))
        except BrokerFailed as error:
            if len(some) == 1:
                return [error]
        return [result for one in some for result in await self._apply(acking, [one])]

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
                    known.add([index], outcome)

    async def plan(self, request: AckRequest, outcomes: Outcomes, *, in_transaction: bool) -> list[Plan]:
        """Acks of lanes for all items that name a message; the others are answered in `outcomes`."""
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
                outcomes.add(indexes, LOST)
                continue
            if found is None or group_id is None:
                outcomes.add(indexes, UNRESOLVABLE)
                continue
            known, positions = await self._resolve(items, indexes, partition, lease)
            if len(known) < len(indexes):
                unknown = sorted(set(indexes).difference(known))
                outcomes.add(unknown, await self._unknown(partition, lease))
            if known:
                ack = lane_ack(items, known, positions, unordered=found.unordered, in_transaction=in_transaction)
                ack.partition, ack.group_id = partition, group_id
                ack.token = lease.token if lease else None
                plans.append(Plan(ack, known, positions, found.queue_id))
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
        ids = items.transaction_ids if isinstance(items, Alike) else [item.transaction_id for item in items]
        if lease and len(ids) == len(indexes):
            whole = self._leases.whole(lease, partition, ids)
            if whole is not None:
                return indexes, whole
        leased = await self._leases.positions(lease, partition) if lease else {}
        for index in indexes:
            position = leased.get(ids[index])
            if position is None:
                position = await self._store.messages.find(partition, ids[index])
                if position is not None and leased and position > max(leased.values()):
                    position = None  # stored, but not what this lease was given
            if position is not None:
                found[index] = position
        return list(found), list(found.values())

    async def answer(self, plan: Plan, acked: AckResult, items: Sequence[AckItem], outcomes: Outcomes) -> None:
        """Tell each item what became of it, and waiting polls that the lane may be ready."""
        ack = plan.ack
        if isinstance(ack, UnorderedAck):
            await self._answer_each(plan, ack, acked, items, outcomes)
            return
        self.count(plan, acked)
        plain = acked.state == "ok" and ack.nack is None and not ack.dead_letters and not acked.finished
        least, most = bounds(plan.positions)
        if plain and least >= acked.before and most < acked.limit:
            outcomes.add(plan.indexes, AckOutcome(True, "", lease_released=acked.released))
        else:
            await self._answer_all(plan, ack, acked, items, outcomes)
        if acked.state == "lost" or acked.released:
            self.released(plan)

    async def _answer_all(
        self,
        plan: Plan,
        ack: OrderedAck,
        acked: AckResult,
        items: Sequence[AckItem],
        outcomes: Outcomes,
    ) -> None:
        for index, position in plan.items:
            outcome = ordered_outcome(items[index], position, ack, acked)
            if outcome.noop:
                outcome.result = await self._store.groups.result(ack.group_id, ack.partition, position)
            outcomes.add([index], outcome)

    async def _answer_each(
        self,
        plan: Plan,
        ack: UnorderedAck,
        acked: AckResult,
        items: Sequence[AckItem],
        outcomes: Outcomes,
    ) -> None:
        self.count(plan, acked)
        if acked.state == "ok" and not (acked.lost or acked.finished or acked.died):
            outcomes.add(plan.indexes, AckOutcome(True, "", lease_released=acked.released))
        else:
            for index, position in plan.items:
                outcome = unordered_outcome(items[index], position, acked)
                if outcome.noop:
                    outcome.result = await self._store.groups.result(ack.group_id, ack.partition, position)
                outcomes.add([index], outcome)
        if acked.released:
            self.released(plan)

    def count(self, plan: Plan, acked: AckResult) -> None:
        """What was applied, for whoever looks at numbers; and dead letters may have to be forwarded."""
        if acked.state != "ok":
            return
        counts, ack = self._telemetry.queue(plan.queue_id), plan.ack
        counts.acks += len(plan.indexes)
        if isinstance(ack, UnorderedAck):
            counts.failed += sum(nack.charge for nack in ack.nacks)
            dead = len(acked.died)
        else:
            counts.failed += ack.nack is not None and ack.nack.charge
            dead = acked.dead + len(ack.dead_letters)
        if dead:
            self._telemetry.gave_up(plan.queue_id, dead)
            self.dead_lettered()

    def resolve(self, plan: Plan, acked: AckResult, items: Sequence[AckItem], outcomes: Outcomes) -> Plan | None:
        """Tell each item what became of it, without looking at the store; the plan of what is left behind a nack that
        came too late."""
        rest = after_a_late_nack(plan, acked, items)
        for index, position in plan.items:
            if isinstance(plan.ack, UnorderedAck):
                outcomes.add([index], unordered_outcome(items[index], position, acked))
            else:
                outcomes.add([index], ordered_outcome(items[index], position, plan.ack, acked))
        return rest

    def released(self, plan: Plan) -> None:
        """A lane may be ready: tell waiting polls, here and at other brokers."""
        if plan.ack.token is not None:
            self._leases.forget(plan.ack.token, plan.ack.partition)
        self._waiters.wake(plan.queue_id, 1, group_id=plan.ack.group_id)
        self._store.hint(plan.queue_id)


def _lane(plan: Plan) -> tuple[PartitionId, int]:
    return plan.ack.partition, plan.ack.group_id


def _one_per_lane(unsettled: list[tuple[int, Plan]]) -> tuple[list[tuple[int, Plan]], list[tuple[int, Plan]]]:
    now: dict[tuple[PartitionId, int], tuple[int, Plan]] = {}
    each: list[tuple[int, Plan]] = []
    others = []
    for entry in unsettled:
        if isinstance(entry[1].ack, UnorderedAck):
            each.append(entry)
            continue
        lane = _lane(entry[1])
        if lane in now:
            others.append(entry)
        else:
            now[lane] = entry
    return [*now.values(), *each], others
