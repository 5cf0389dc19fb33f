"""The ack plan of one lane: one ack for the store, and an outcome for each item. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from fairlane.broker.unordered_ack import ranges, unordered_ack
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.outcome import AckItem, AckOutcome, Alike, Verdict
from fairlane.store.contract.values import AckResult, Dead, LaneAck, Nack, OrderedAck, UnorderedAck

LOST = AckOutcome(
    False, "", code="lease_lost", error="the lease ended or is not this group's; the messages are delivered again"
)
LOCKED = "somebody else holds a partition of these acks in the database for too long; try again"
UNRESOLVABLE = AckOutcome(
    False,
    "",
    code="unresolvable",
    error="unresolvable: no message with this transactionId in the lease or the partition",
)


NOT_DELIVERED = AckOutcome(
    False,
    "",
    code="not_delivered",
    error="this message was not handed out yet; ack what a pop returned",
)


class Plan(msgspec.Struct):
    """The plan of one lane's ack, and whose items it answers: their indexes in the request, and their positions in the
    lane."""

    ack: LaneAck
    indexes: Sequence[int]
    positions: Sequence[int]
    queue_id: int

    @property
    def items(self) -> Iterator[tuple[int, int]]:
        """(index, position) of each."""
        return zip(self.indexes, self.positions, strict=True)


def lanes_of(items: Sequence[AckItem]) -> Mapping[tuple[PartitionId, LeaseId | str | None], Sequence[int]]:
    """Indexes of the items by lane and lease. Neighbours are mostly of one lane, so that is tried first."""
    if isinstance(items, Alike):
        return items.lanes
    lanes: dict[tuple[PartitionId, LeaseId | str | None], list[int]] = {}
    partition: PartitionId | None = None
    lease: str | None = None
    indexes: list[int] = []
    for index, item in enumerate(items):
        if item.partition != partition or item.lease != lease:
            partition, lease = item.partition, item.lease
            indexes = lanes.setdefault((partition, lease or None), [])
        indexes.append(index)
    return lanes


def given_positions(items: Sequence[AckItem], indexes: Sequence[int]) -> Sequence[int]:
    """The positions that the caller gave."""
    if isinstance(items, Alike):
        if items.positions is None:
            return ()
        if isinstance(indexes, range):
            return items.positions[indexes.start : indexes.stop]
        return [items.positions[index] for index in indexes]
    return [position for index in indexes if (position := items[index].position) is not None]


def bounds(positions: Sequence[int]) -> tuple[int, int]:
    """The least and the greatest of some positions."""
    if isinstance(positions, range):
        return positions[0], positions[-1]
    return min(positions), max(positions)


def after_a_late_nack(plan: Plan, acked: AckResult, items: Sequence[AckItem]) -> Plan | None:
    """A nack that came too late clamps nothing: what was said of messages behind it that are open still counts."""
    nack = None if isinstance(plan.ack, UnorderedAck) else plan.ack.nack
    if nack is None or acked.state != "ok":
        return None
    if nack.position >= acked.before and nack.position not in acked.finished:
        return None
    rest = {index: position for index, position in plan.items if position > nack.position}
    late = {index: position for index, position in plan.items if position <= nack.position}
    plan.indexes, plan.positions = list(late), list(late.values())
    if not rest:
        return None
    ack = _ordered_ack(items, rest, in_transaction=False)
    before = plan.ack
    ack.partition, ack.group_id, ack.token = before.partition, before.group_id, before.token
    return Plan(ack, list(rest), list(rest.values()), plan.queue_id)


def lane_ack(
    items: Sequence[AckItem],
    indexes: Sequence[int],
    positions: Sequence[int],
    *,
    unordered: bool,
    in_transaction: bool,
) -> LaneAck:
    """What these items say of a lane that is still to be named."""
    if isinstance(items, Alike) and items.verdict.finishes:
        return _completed(positions, unordered=unordered)
    if isinstance(items, Alike) and unordered and not in_transaction and items.verdict.status != "dlq":
        return _again(positions, items.verdict)
    found = dict(zip(indexes, positions, strict=True))
    if unordered:
        return unordered_ack(items, found, in_transaction=in_transaction)
    return _ordered_ack(items, found, in_transaction=in_transaction)


def _completed(positions: Sequence[int], *, unordered: bool) -> LaneAck:
    done = ranges(positions)
    if unordered:
        return UnorderedAck(partition=PartitionId(0, 0), group_id=0, token=None, done=done)
    (first, upto), *ahead = done
    return OrderedAck(partition=PartitionId(0, 0), group_id=0, token=None, first=first, upto=upto, ahead=ahead)


def _again(positions: Sequence[int], verdict: Verdict) -> UnorderedAck:
    """All of these come again, each by itself."""
    charge, error = verdict.status == "failed", verdict.error or "no reason given"
    nacks = [Nack(position, charge, error, verdict.delay_ms) for position in sorted(set(positions))]
    return UnorderedAck(partition=PartitionId(0, 0), group_id=0, token=None, nacks=nacks)


def _ordered_ack(items: Sequence[AckItem], found: dict[int, int], *, in_transaction: bool) -> OrderedAck:
    """Below the first message that must come again what was acked is finished; the rest is redelivered."""
    ack = OrderedAck(partition=PartitionId(0, 0), group_id=0, token=None, upto=0)
    done, through = [], -1
    for index, position in sorted(found.items(), key=lambda entry: entry[1]):
        item = items[index]
        status = "dlq" if in_transaction and item.status == "failed" else item.status
        if status in ("failed", "retry"):
            error = item.error or "no reason given"
            ack.nack = Nack(position, status == "failed", error, item.delay_ms)
            break
        done.append(position)
        if item.cumulative and item.lease is not None:
            through = position
        if status == "dlq":
            ack.dead_letters.append(Dead(position, item.error or "dead-lettered by the consumer"))
        if item.result is not None:
            ack.results.append((position, item.result))
    spans = ranges(position for position in done if position > through)
    if through >= 0:
        spans.insert(0, (0, through + 1))
    if spans:
        (ack.first, ack.upto), *ack.ahead = spans
    return ack


def ordered_outcome(item: AckItem, position: int, ack: OrderedAck, acked: AckResult) -> AckOutcome:
    outcome = AckOutcome(success=True, transaction_id=item.transaction_id)
    finishes = item.status in ("completed", "success")
    nack = ack.nack
    if acked.state != "ok":
        outcome.success = outcome.noop = acked.repeated and finishes
        if not outcome.success:
            outcome.code, outcome.error = LOST.code, LOST.error
    elif position < acked.before or position in acked.finished:
        outcome.success = outcome.noop = finishes
        if not finishes:
            outcome.code = "committed"
            outcome.error = "too late: this message is already committed"
    elif position >= acked.limit:
        outcome.success, outcome.code, outcome.error = False, NOT_DELIVERED.code, NOT_DELIVERED.error
    elif nack is not None and position > nack.position:
        outcome.success = False
        outcome.code = "redelivered"
        outcome.error = "an earlier message of this call failed, so this one is delivered again"
    else:
        outcome.lease_released = acked.released
        dead_lettered = any(dead.position == position for dead in ack.dead_letters)
        outcome.dead_lettered = dead_lettered or (nack is not None and position == nack.position and acked.dead)
    return outcome
