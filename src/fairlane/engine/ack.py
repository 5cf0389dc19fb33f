"""Ack: what consumers say of single messages becomes one settlement per lane."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import msgspec

from fairlane.engine.catalogue import Catalogue
from fairlane.engine.leases import Leases
from fairlane.engine.settlement import (
    LOST,
    UNRESOLVABLE,
    Plan,
    behind_a_late_nack,
    bounds,
    given_positions,
    lanes_of,
    said,
    settled_outcome,
)
from fairlane.engine.unknown import still_unknown
from fairlane.engine.verdicts import outcome_of
from fairlane.engine.waiters import Waiters
from fairlane.errors import Unavailable
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import AckItem, AckOutcome, BufferReason, Outcomes
from fairlane.store.base import Store
from fairlane.store.values import Settled, Settlement, Verdicts
from fairlane.telemetry import Telemetry

Settle = Callable[[list[Settlement | Verdicts]], Awaitable[list[Settled]]]


class AckRequest(msgspec.Struct):
    tenant: str
    group: str
    items: Sequence[AckItem]
    operation_id: UUID | None = None
    """Under which it was accepted before, and waits again if it must; then all its items are of one lease and lane."""


class Acker:
    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        leases: Leases,
        waiters: Waiters,
        telemetry: Telemetry,
        wait: Callable[[list[AckRequest], BufferReason], Awaitable[list[Sequence[AckOutcome] | Exception]]],
    ) -> None:
        """`wait` keeps acks as operations."""
        self._wait = wait
        self._store = store
        self._catalogue = catalogue
        self._leases = leases
        self._waiters = waiters
        self._telemetry = telemetry
        self.buried: Callable[[], None] = lambda: None
        """Called when messages were dead-lettered."""

    async def flush(self, requests: list[AckRequest]) -> list[Sequence[AckOutcome] | Exception]:
        applied = False

        async def settle(settlements: list[Settlement | Verdicts]) -> list[Settled]:
            nonlocal applied
            settled = await self._store.messages.ack(settlements)
            applied = True
            return settled

        try:
            return await self._flush(requests, settle)
        except Unavailable as error:
            if not applied:
                raise
            raise still_unknown(error) from error

    async def _flush(self, requests: list[AckRequest], settle: Settle) -> list[Sequence[AckOutcome] | Exception]:
        outcomes = [Outcomes(request.items) for request in requests]
        waiting: list[tuple[int, Plan]] = []
        behind: list[tuple[int, Plan]] = []
        for number, request in enumerate(requests):
            plans = await self.plan(request, outcomes[number], in_transaction=False)
            waiting += [(number, plan) for plan in plans]
        while waiting:
            # A lane takes one settlement a call; a second one of the same lane waits for the first.
            now, waiting = _one_per_lane(waiting)
            settled = await settle([plan.settlement for _, plan in now])
            for (number, plan), result in zip(now, settled, strict=True):
                if result.state == "behind":
                    behind.append((number, plan))
                    continue
                rest = behind_a_late_nack(plan, result, requests[number].items)
                if rest is not None:
                    waiting.append((number, rest))
                await self.answer(plan, result, requests[number].items, outcomes[number])
        answers: list[Sequence[AckOutcome] | Exception] = list(outcomes)
        if behind:
            await self._go_behind(requests, behind, answers)
        return answers

    async def _go_behind(
        self, requests: list[AckRequest], plans: list[tuple[int, Plan]], answers: list[Sequence[AckOutcome] | Exception]
    ) -> None:
        """Acks of these lanes wait as operations: an ack that overtook a nack would finish what failed."""
        parts = [
            msgspec.structs.replace(requests[number], items=[requests[number].items[index] for index in plan.indexes])
            for number, plan in plans
        ]
        for (number, plan), kept in zip(plans, await self._wait(parts, "maintaining_order"), strict=True):
            known = answers[number]
            if isinstance(kept, Exception):
                answers[number] = kept
            elif isinstance(known, Outcomes):
                for index, outcome in zip(plan.indexes, kept, strict=True):
                    known.say([index], outcome)

    async def plan(self, request: AckRequest, outcomes: Outcomes, *, in_transaction: bool) -> list[Plan]:
        """Settlements for all items that name a message; the others are answered in `outcomes`."""
        plans = []
        items = request.items
        for (partition, named), indexes in lanes_of(items).items():
            home = await self._catalogue.partition(partition)
            group_id = await self._catalogue.group_id(home.queue_id, request.group) if home else None
            lease = LeaseId.parse(named) if isinstance(named, str) else named
            if home and lease and lease.group_id != group_id:
                # Another broker may have made the group anew.
                self._catalogue.forget_group(home.queue_id, request.group)
                group_id = await self._catalogue.group_id(home.queue_id, request.group)
            if named is not None and (lease is None or lease.group_id != group_id):
                outcomes.say(indexes, LOST)
                continue
            if home is None or group_id is None:
                outcomes.say(indexes, UNRESOLVABLE)
                continue
            known, positions = await self._resolve(items, indexes, partition, lease)
            if len(known) < len(indexes):
                unknown = sorted(set(indexes).difference(known))
                outcomes.say(unknown, await self._unknown(partition, lease))
            if known:
                settlement = said(items, known, positions, unordered=home.unordered, in_transaction=in_transaction)
                settlement.partition, settlement.group_id = partition, group_id
                settlement.token = lease.token if lease else None
                plans.append(Plan(settlement, known, positions, home.queue_id))
        return plans

    async def _unknown(self, partition: PartitionId, lease: LeaseId | None) -> AckOutcome:
        """What is said of items that name no message of the lease."""
        if lease is None:
            return UNRESOLVABLE
        held = any(leased.partition == partition for leased in await self._store.messages.leased(lease))
        return UNRESOLVABLE if held else LOST

    async def _resolve(
        self, items: Sequence[AckItem], indexes: Sequence[int], partition: PartitionId, lease: LeaseId | None
    ) -> tuple[Sequence[int], Sequence[int]]:
        """The items that name a message of the lease, or one that was finished before, and the positions of those."""
        given = given_positions(items, indexes)
        if len(given) == len(indexes):
            spans = await self._leases.holds(lease, partition) if lease else []
            least, most = bounds(given)
            # Of a lease that ended the store says whether these were its last acks, repeated.
            if not spans or any(least in held and most in held for held in spans):
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
        plain = settled.state == "ok" and settlement.nack is None and not settlement.bury
        if plain and bounds(plan.positions)[0] >= settled.before:
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
            dead = settled.dead + len(said.bury)
        if dead:
            self._telemetry.gave_up(plan.queue_id, dead)
            self.buried()

    def resolve(self, plan: Plan, settled: Settled, items: Sequence[AckItem], outcomes: Outcomes) -> Plan | None:
        """Tell each item what became of it, without looking at the store; the plan of what is left behind a nack that
        came too late."""
        rest = behind_a_late_nack(plan, settled, items)
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


def _one_per_lane(waiting: list[tuple[int, Plan]]) -> tuple[list[tuple[int, Plan]], list[tuple[int, Plan]]]:
    now: dict[tuple[PartitionId, int], tuple[int, Plan]] = {}
    each: list[tuple[int, Plan]] = []
    later = []
    for entry in waiting:
        if isinstance(entry[1].settlement, Verdicts):
            each.append(entry)
            continue
        lane = (entry[1].settlement.partition, entry[1].settlement.group_id)
        if lane in now:
            later.append(entry)
        else:
            now[lane] = entry
    return [*now.values(), *each], later
