"""What consumers say of messages of an unordered queue: each for itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem, AckOutcome
from fairlane.store.values import Dead, Nack, Settled, Verdicts

_LOST = "the lease ended or is not this group's; the message is delivered again"


def verdicts(items: Sequence[AckItem], found: Mapping[int, int], *, in_transaction: bool) -> Verdicts:
    """`found` are positions by the items' indexes; of one that is named twice the last word counts."""
    said = Verdicts(partition=PartitionId(0, 0), group_id=0, token=None)
    done = []
    last = {position: items[index] for index, position in sorted(found.items())}
    for position, item in sorted(last.items()):
        status = "dlq" if in_transaction and item.status == "failed" else item.status
        if status in ("failed", "retry"):
            said.nacks.append(Nack(position, status == "failed", item.error or "no reason given", item.delay_ms))
        elif status == "dlq":
            said.dead_letters.append(Dead(position, item.error or "dead-lettered by the consumer"))
        else:
            done.append(position)
            if item.result is not None:
                said.results.append((position, item.result))
    said.done = ranges(done)
    return said


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


def outcome_of(item: AckItem, position: int, settled: Settled) -> AckOutcome:
    outcome = AckOutcome(success=True, transaction_id=item.transaction_id)
    finishes = item.status in ("completed", "success")
    if settled.state == "gone" or position in settled.lost:
        outcome.success, outcome.code, outcome.error = False, "lease_lost", _LOST
    elif position in settled.finished:
        outcome.success = outcome.noop = finishes
        if not finishes:
            outcome.code, outcome.error = "committed", "too late: this message is already finished"
    else:
        outcome.lease_released = settled.released
        outcome.dead_lettered = position in settled.died
    return outcome
