"""Ack: what consumers say of single messages becomes one settlement per lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlane.engine.catalogue import Catalogue
from fairlane.engine.leases import Leases
from fairlane.engine.verdicts import outcome_of, verdicts
from fairlane.engine.waiters import Waiters
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import AckItem, AckOutcome, Completed
from fairlane.store.base import Store
from fairlane.store.values import Bury, Nack, Settled, Settlement, Verdicts
from fairlane.telemetry import Telemetry

LOST = "the lease ended or is not this group's; the messages are delivered again"
UNRESOLVABLE = "unresolvable: no message with this transactionId in the lease or the partition"


class AckRequest(msgspec.Struct):
    tenant: str
    group: str
    items: Sequence[AckItem]


class Plan(msgspec.Struct):
    """A settlement, and whose items it answers: `items` are (index in the request, position)."""

    settlement: Settlement | Verdicts
    items: list[tuple[int, int]]
    queue_id: int


class Acker:
    def __init__(
        self, store: Store, catalogue: Catalogue, leases: Leases, waiters: Waiters, telemetry: Telemetry
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._leases = leases
        self._waiters = waiters
        self._telemetry = telemetry

    async def flush(self, requests: list[AckRequest]) -> list[list[AckOutcome] | Exception]:
        outcomes: list[list[AckOutcome]] = [blank(request.items) for request in requests]
        waiting: list[tuple[int, Plan]] = []
        for number, request in enumerate(requests):
            plans = await self.plan(request, outcomes[number], in_transaction=False)
            waiting += [(number, plan) for plan in plans]
        while waiting:
            # A lane takes one settlement a call; a second one of the same lane waits for the first.
            now, waiting = _one_per_lane(waiting)
            settled = await self._store.messages.ack([plan.settlement for _, plan in now])
            for (number, plan), result in zip(now, settled, strict=True):
                rest = _behind_a_late_nack(plan, result, requests[number].items)
                if rest is not None:
                    waiting.append((number, rest))
                await self.answer(plan, result, requests[number].items, outcomes[number])
        return list(outcomes)

    async def plan(self, request: AckRequest, outcomes: list[AckOutcome], *, in_transaction: bool) -> list[Plan]:
        """Settlements for all items that name a message; the others are answered in `outcomes`."""
        plans = []
        for (partition, lease_text), indexes in lanes_of(request.items).items():
            home = await self._catalogue.partition(partition)
            group_id = await self._catalogue.group_id(home.queue_id, request.group) if home else None
            lease = LeaseId.parse(lease_text) if lease_text is not None else None
            if home and lease and lease.group_id != group_id:
                # Another broker may have made the group anew.
                self._catalogue.forget_group(home.queue_id, request.group)
                group_id = await self._catalogue.group_id(home.queue_id, request.group)
            if lease_text is not None and (lease is None or lease.group_id != group_id):
                refuse(outcomes, indexes, "lease_lost", LOST)
                continue
            if home is None or group_id is None:
                refuse(outcomes, indexes, "unresolvable", UNRESOLVABLE)
                continue
            found = await self._resolve(request.items, indexes, partition, lease)
            if len(found) < len(indexes):
                unknown = [index for index in indexes if index not in found]
                await self._refuse_unknown(outcomes, unknown, partition, lease)
            if found:
                settlement: Settlement | Verdicts
                if home.unordered:
                    settlement = verdicts(request.items, found, in_transaction=in_transaction)
                else:
                    settlement = _settlement(request.items, found, in_transaction=in_transaction)
                settlement.partition, settlement.group_id = partition, group_id
                settlement.token = lease.token if lease else None
                plans.append(Plan(settlement, list(found.items()), home.queue_id))
        return plans

    async def _refuse_unknown(
        self, outcomes: list[AckOutcome], indexes: list[int], partition: PartitionId, lease: LeaseId | None
    ) -> None:
        held = lease and any(leased.partition == partition for leased in await self._store.messages.leased(lease))
        if lease and not held:
            refuse(outcomes, indexes, "lease_lost", LOST)
        else:
            refuse(outcomes, indexes, "unresolvable", UNRESOLVABLE)

    async def _resolve(
        self, items: Sequence[AckItem], indexes: Sequence[int], partition: PartitionId, lease: LeaseId | None
    ) -> dict[int, int]:
        """Position of each item that names a message of the lease, or one that was finished before."""
        given = _given(items, indexes)
        if len(given) == len(indexes):
            spans = await self._leases.holds(lease, partition) if lease else []
            # Of a lease that ended the store says whether these were its last acks, repeated.
            if not spans or any(min(given.values()) in held and max(given.values()) in held for held in spans):
                return given
            return {index: position for index, position in given.items() if any(position in held for held in spans)}
        found: dict[int, int] = {}
        leased = await self._leases.positions(lease, partition) if lease else {}
        for index in indexes:
            position = leased.get(items[index].transaction_id)
            if position is None:
                position = await self._store.messages.find(partition, items[index].transaction_id)
                if position is not None and leased and position > max(leased.values()):
                    position = None  # stored, but not what this lease was given
            if position is not None:
                found[index] = position
        return found

    async def answer(self, plan: Plan, settled: Settled, items: Sequence[AckItem], outcomes: list[AckOutcome]) -> None:
        """Tell each item what became of it, and waiting polls that the lane may be ready."""
        settlement = plan.settlement
        counts = self._telemetry.queue(plan.queue_id)
        if isinstance(settlement, Verdicts):
            await self._answer_each(plan, settlement, settled, items, outcomes)
            return
        if settled.state == "ok":
            counts.acks += len(plan.items)
            counts.failed += settlement.nack is not None and settlement.nack.charge
            counts.dead += settled.dead + len(settlement.bury)
        plain = settled.state == "ok" and settlement.nack is None and not settlement.bury
        for index, position in plan.items:
            if plain and position >= settled.before:
                outcome = outcomes[index]
                outcome.success, outcome.lease_released = True, settled.released
                continue
            outcome = outcomes[index] = _outcome(items[index], position, settlement, settled)
            if outcome.noop:
                outcome.result = await self._store.groups.result(settlement.group_id, settlement.partition, position)
        if settled.state == "lost" or settled.released:
            if settlement.token is not None:
                self._leases.forget(settlement.token, settlement.partition)
            self._waiters.wake(plan.queue_id, 1, group_id=settlement.group_id)
            self._store.hint(plan.queue_id)

    async def _answer_each(
        self,
        plan: Plan,
        said: Verdicts,
        settled: Settled,
        items: Sequence[AckItem],
        outcomes: list[AckOutcome],
    ) -> None:
        counts = self._telemetry.queue(plan.queue_id)
        if settled.state == "ok":
            counts.acks += len(plan.items)
            counts.failed += sum(nack.charge for nack in said.nacks)
            counts.dead += len(settled.died)
        plain = settled.state == "ok" and not (settled.lost or settled.finished or said.nacks or said.bury)
        for index, position in plan.items:
            if plain:
                outcomes[index].success, outcomes[index].lease_released = True, settled.released
                continue
            outcome = outcomes[index] = outcome_of(items[index], position, settled)
            if outcome.noop:
                outcome.result = await self._store.groups.result(said.group_id, said.partition, position)
        if settled.released:
            self.released(plan)

    def resolve(
        self, plan: Plan, settled: Settled, items: Sequence[AckItem], outcomes: list[AckOutcome]
    ) -> Plan | None:
        """Tell each item what became of it, without looking at the store; the plan of what is left behind a nack that
        came too late."""
        rest = _behind_a_late_nack(plan, settled, items)
        for index, position in plan.items:
            if isinstance(plan.settlement, Verdicts):
                outcomes[index] = outcome_of(items[index], position, settled)
            else:
                outcomes[index] = _outcome(items[index], position, plan.settlement, settled)
        return rest

    def released(self, plan: Plan) -> None:
        """A lane may be ready: tell waiting polls, here and at other brokers."""
        if plan.settlement.token is not None:
            self._leases.forget(plan.settlement.token, plan.settlement.partition)
        self._waiters.wake(plan.queue_id, 1, group_id=plan.settlement.group_id)
        self._store.hint(plan.queue_id)


def lanes_of(items: Sequence[AckItem]) -> Mapping[tuple[PartitionId, str | None], Sequence[int]]:
    """Indexes of the items by lane and lease. Neighbours are mostly of one lane, so that is tried first."""
    if isinstance(items, Completed):
        return items.lanes
    lanes: dict[tuple[PartitionId, str | None], list[int]] = {}
    partition: PartitionId | None = None
    lease: str | None = None
    indexes: list[int] = []
    for index, item in enumerate(items):
        if item.partition != partition or item.lease != lease:
            partition, lease = item.partition, item.lease
            indexes = lanes.setdefault((partition, lease or None), [])
        indexes.append(index)
    return lanes


def _given(items: Sequence[AckItem], indexes: Sequence[int]) -> dict[int, int]:
    """The positions that the caller gave, by index."""
    if isinstance(items, Completed):
        return dict(zip(indexes, map(items.positions.__getitem__, indexes), strict=True))
    return {index: position for index in indexes if (position := items[index].position) is not None}


def blank(items: Sequence[AckItem]) -> list[AckOutcome]:
    if isinstance(items, Completed):
        return [AckOutcome(False, transaction_id) for transaction_id in items.transaction_ids]
    return [AckOutcome(False, item.transaction_id) for item in items]


def _behind_a_late_nack(plan: Plan, settled: Settled, items: Sequence[AckItem]) -> Plan | None:
    """A nack that came too late clamps nothing: what was said of the messages from the cursor on still counts."""
    nack = None if isinstance(plan.settlement, Verdicts) else plan.settlement.nack
    if nack is None or settled.state != "ok" or nack.position >= settled.before:
        return None
    rest = {index: position for index, position in plan.items if position >= settled.before}
    plan.items = [(index, position) for index, position in plan.items if position < settled.before]
    if not rest:
        return None
    settlement = _settlement(items, rest, in_transaction=False)
    before = plan.settlement
    settlement.partition, settlement.group_id, settlement.token = before.partition, before.group_id, before.token
    return Plan(settlement, sorted(rest.items()), plan.queue_id)


def refuse(outcomes: list[AckOutcome], indexes: Sequence[int], code: str, error: str) -> None:
    for index in indexes:
        outcomes[index].code, outcomes[index].error = code, error


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


def _settlement(items: Sequence[AckItem], found: dict[int, int], *, in_transaction: bool) -> Settlement:
    """Everything below the first message that must come again is finished as far as it was acked; the rest is
    redelivered."""
    settlement = Settlement(partition=PartitionId(0, 0), group_id=0, token=None, upto=0)
    if isinstance(items, Completed):
        settlement.upto = max(found.values()) + 1
        return settlement
    for index, position in sorted(found.items(), key=lambda entry: entry[1]):
        item = items[index]
        status = "dlq" if in_transaction and item.status == "failed" else item.status
        if status in ("failed", "retry"):
            error = item.error or "no reason given"
            settlement.nack = Nack(position, status == "failed", error, item.delay_ms)
            break
        settlement.upto = position + 1
        if status == "dlq":
            settlement.bury.append(Bury(position, item.error or "dead-lettered by the consumer"))
        if item.result is not None:
            settlement.results.append((position, item.result))
    return settlement


def _outcome(item: AckItem, position: int, settlement: Settlement, settled: Settled) -> AckOutcome:
    outcome = AckOutcome(success=True, transaction_id=item.transaction_id)
    finishes = item.status in ("completed", "success")
    nack = settlement.nack
    if settled.state != "ok":
        outcome.success = outcome.noop = settled.repeated and finishes and position < settled.after
        if not outcome.success:
            outcome.code, outcome.error = "lease_lost", LOST
    elif position < settled.before:
        outcome.success = outcome.noop = finishes
        if not finishes:
            outcome.code = "committed"
            outcome.error = "too late: this message is already committed"
    elif nack is not None and position > nack.position:
        outcome.success = False
        outcome.code = "redelivered"
        outcome.error = "an earlier message of this call failed, so this one is delivered again"
    else:
        outcome.lease_released = settled.released
        buried = any(bury.position == position for bury in settlement.bury)
        outcome.dead_lettered = buried or (nack is not None and position == nack.position and settled.dead)
    return outcome
