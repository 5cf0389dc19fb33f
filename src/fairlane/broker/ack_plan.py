"""The ack plan of one lane: one ack for the store, and an outcome for each item. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem, AckOutcome, UniformAcks
from fairlane.store.contract.values import AckResult, LaneAck, Nack, Span, ToDeadLetter

LOST = AckOutcome(
    False, "", code="lease_lost", error="the lease ended or is not this group's; the messages are delivered again"
)
LOCKED = "a partition of these acks is locked by another database session; try again"
UNRESOLVABLE = AckOutcome(
    False,
    "",
    code="unresolvable",
    error="unresolvable: no message with this transactionId in the lease or the partition",
)
NOT_DELIVERED = AckOutcome(
    False, "", code="not_delivered", error="this message was not delivered yet; ack only messages that a pop returned"
)
_CANCELLED = AckOutcome(
    False, "", code="cancelled", error="this message was cancelled; it is not delivered again, and its ack is ignored"
)
_COMMITTED = AckOutcome(False, "", code="committed", error="too late: this message is already committed")
_REDELIVERED = AckOutcome(
    False,
    "",
    code="redelivered",
    error="an earlier message of this call failed, so this one is delivered again",
)


class Plan(msgspec.Struct):
    """The plan of one lane's ack, and the items that it answers.

    It has their indexes in the request, and their positions in the lane.
    """

    ack: LaneAck
    indexes: Sequence[int]
    positions: Sequence[int]
    queue_id: int
    lease: str | None
    answered: list[AckOutcome] = []
    """Outcomes of items in the same lane that an earlier plan answered. This plan may end their lease."""

    @property
    def lane(self) -> tuple[PartitionId, int]:
        return self.ack.partition, self.ack.group_id

    @property
    def items(self) -> Iterator[tuple[int, int]]:
        """Yield (index, position) of each item."""
        return zip(self.indexes, self.positions, strict=True)


def lanes_of(items: Sequence[AckItem]) -> Mapping[tuple[PartitionId, str | None], Sequence[int]]:
    """Return the indexes of the items by lane and lease. Neighbours usually share their lane, which is tried first."""
    if isinstance(items, UniformAcks):
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


def given_positions(
    items: Sequence[AckItem], lane: tuple[PartitionId, str | None], indexes: Sequence[int]
) -> Sequence[int]:
    """Return the positions that the caller gave for its items of a lane."""
    if isinstance(items, UniformAcks):
        return items.positions_of(lane)
    return [position for index in indexes if (position := items[index].position) is not None]


def after_a_late_nack(plan: Plan, acked: AckResult, items: Sequence[AckItem]) -> Plan | None:
    """Return the plan for items after a nack that came too late. Verdicts on later open messages still count."""
    nack = plan.ack.nacks[0] if plan.ack.nacks and not plan.ack.unordered else None
    if nack is None or acked.state != "ok":
        return None
    if nack.position >= acked.before and nack.position not in acked.finished:
        return None
    rest = {index: position for index, position in plan.items if position > nack.position}
    late = {index: position for index, position in plan.items if position <= nack.position}
    plan.indexes, plan.positions = list(late), list(late.values())
    if not rest:
        return None
    ack = LaneAck(partition=plan.ack.partition, group_id=plan.ack.group_id, token=plan.ack.token)
    add_verdicts(ack, items, list(rest), list(rest.values()))
    return Plan(ack, list(rest), list(rest.values()), plan.queue_id, plan.lease, answered=plan.answered)


def add_verdicts(ack: LaneAck, items: Sequence[AckItem], indexes: Sequence[int], positions: Sequence[int]) -> None:
    """Add the verdicts of these items to the ack of their lane.

    In an unordered lane the last verdict on a message counts. In an ordered lane acks below the first message to retry
    finish their messages, and the rest is redelivered.
    """
    unordered = ack.unordered
    if isinstance(items, UniformAcks):
        status = items.verdict.status
        if status in ("completed", "success") and (unordered or not items.verdict.cumulative):
            ack.done = ranges(positions)
            return
        if unordered and status != "dlq":
            verdict = items.verdict
            error, delay_ms, traceback = verdict.error or _NO_REASON, verdict.delay_ms, verdict.traceback
            ack.nacks = [Nack(each, status == "failed", error, delay_ms, traceback) for each in sorted(set(positions))]
            return
    verdicts: Iterable[tuple[int, int]] = sorted(zip(positions, indexes, strict=True))
    if unordered:
        verdicts = dict(verdicts).items()
    done, through = [], -1
    for position, index in verdicts:
        item = items[index]
        if item.status in ("retry", "failed"):
            error = item.error or _NO_REASON
            ack.nacks.append(Nack(position, item.status == "failed", error, item.delay_ms, item.traceback))
            if unordered:
                continue
            break
        if item.status == "dlq":
            error = item.error or "dead-lettered by the consumer"
            ack.dead_letters.append(ToDeadLetter(position, error, item.traceback))
            if unordered:
                continue
        done.append(position)
        if item.cumulative and item.lease is not None and not unordered:
            through = position
        if item.result is not None:
            ack.results.append((position, item.result))
    ack.done = ranges(position for position in done if position > through)
    if through >= 0:
        ack.done.insert(0, (0, through + 1))
        ack.cumulative = True


_NO_REASON = "no reason given"


def ranges(positions: Iterable[int]) -> list[Span]:
    """Return positions as ranges without gaps: from the first to below the second."""
    if isinstance(positions, range) and positions:
        return [(positions.start, positions.stop)]
    rising = sorted(set(positions))
    if rising and rising[-1] - rising[0] == len(rising) - 1:
        return [(rising[0], rising[-1] + 1)]
    found: list[Span] = []
    for position in rising:
        if found and position == found[-1][1]:
            found[-1] = found[-1][0], position + 1
        else:
            found.append((position, position + 1))
    return found


def outcome_of(item: AckItem, position: int, ack: LaneAck, acked: AckResult) -> AckOutcome:
    """Return the outcome of one item."""
    finishes = item.status in ("completed", "success")
    if ack.unordered:
        lost = acked.state == "gone" or position in acked.lost
        over = position in acked.finished
    else:
        lost = acked.state != "ok" and not (acked.repeated and finishes)
        over = acked.state != "ok" or position < acked.before or position in acked.finished
    if position in acked.cancelled:
        outcome = _CANCELLED
    elif lost:
        outcome = LOST
    elif over:
        outcome = AckOutcome(True, "", noop=True) if finishes else _COMMITTED
    elif position >= acked.limit:
        outcome = NOT_DELIVERED
    elif ack.nacks and not ack.unordered and position > ack.nacks[0].position:
        outcome = _REDELIVERED
    else:
        dead = position in acked.died or any(dead.position == position for dead in ack.dead_letters)
        dead = dead or (acked.dead and position == ack.nacks[0].position)
        outcome = AckOutcome(True, "", lease_released=acked.released, dead_lettered=dead)
    return msgspec.structs.replace(outcome, transaction_id=item.transaction_id)
