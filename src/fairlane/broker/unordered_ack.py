"""Acks of an unordered lane: each message for itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem, AckOutcome
from fairlane.store.contract.values import AckResult, Dead, Nack, UnorderedAck

_LOST = "the lease ended or is not this group's; the message is delivered again"


def unordered_ack(items: Sequence[AckItem], found: Mapping[int, int], *, in_transaction: bool) -> UnorderedAck:
    """`found` are positions by the items' indexes; of one that is named twice the last word counts."""
    ack = UnorderedAck(partition=PartitionId(0, 0), group_id=0, token=None)
    done = []
    last = {position: items[index] for index, position in sorted(found.items())}
    for position, item in sorted(last.items()):
        status = "dlq" if in_transaction and item.status == "failed" else item.status
        if status in ("failed", "retry"):
            ack.nacks.append(Nack(position, status == "failed", item.error or "no reason given", item.delay_ms))
        elif status == "dlq":
            ack.dead_letters.append(Dead(position, item.error or "dead-lettered by the consumer"))
        else:
            done.append(position)
            if item.result is not None:
                ack.results.append((position, item.result))
    ack.done = ranges(done)
    return ack


def ranges(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Positions as ranges without gaps: from the first to below the second."""
    if isinstance(positions, range):
        return [(positions.start, positions.stop)]
    found: list[tuple[int, int]] = []
    first = upto = -1
    rising = sorted(set(positions))
    if rising and rising[-1] - rising[0] == len(rising) - 1:
        return [(rising[0], rising[-1] + 1)]
    for position in rising:
        if position == upto:
            upto += 1
            continue
        if upto > first:
            found.append((first, upto))
        first, upto = position, position + 1
    if upto > first:
        found.append((first, upto))
    return found


def unordered_outcome(item: AckItem, position: int, acked: AckResult) -> AckOutcome:
    outcome = AckOutcome(success=True, transaction_id=item.transaction_id)
    finishes = item.status in ("completed", "success")
    if acked.state == "gone" or position in acked.lost:
        outcome.success, outcome.code, outcome.error = False, "lease_lost", _LOST
    elif position in acked.finished:
        outcome.success = outcome.noop = finishes
        if not finishes:
            outcome.code, outcome.error = "committed", "too late: this message is already finished"
    else:
        outcome.lease_released = acked.released
        outcome.dead_lettered = position in acked.died
    return outcome
