"""Acks that the store does not take: into the journal, if that does no harm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fairlane.engine.ack import AckRequest
from fairlane.engine.held_lanes import HeldLanes
from fairlane.engine.kept import ack_entry, ack_lane
from fairlane.errors import FairlaneError
from fairlane.model.outcome import AckItem, AckOutcome
from fairlane.store.journal import Lane, NewEntry

AckAnswers = list[Sequence[AckOutcome] | Exception]


def unfenced(request: AckRequest) -> bool:
    """Whether it has a nack without a lease, which counts twice when it is applied twice."""
    return any(item.lease is None and item.status not in ("completed", "success") for item in request.items)


async def keep_acks(requests: list[AckRequest], held: HeldLanes, error: FairlaneError, *, doubtful: bool) -> AckAnswers:
    """Applied twice an ack changes nothing, and a nack neither while its lease fences it; a nack without a lease could
    count twice, so that one gets the error once it may have been applied."""
    answers: AckAnswers = []
    entries: list[NewEntry] = []
    room = held.journal.room()
    for request in requests:
        lanes: dict[Lane, list[AckItem]] = defaultdict(list)
        for item in request.items:
            lanes[ack_lane(request, item)].append(item)
        mine = [ack_entry(lane, items) for lane, items in lanes.items()]
        size = sum(entry.size for entry in mine)
        if doubtful and unfenced(request):
            answers.append(error)
        elif size > room:
            answers.append(error if doubtful else held.full())
        else:
            room -= size
            entries += mine
            answers.append([AckOutcome(True, item.transaction_id, durability="journal") for item in request.items])
    failure = await held.append(entries) if entries else None
    if failure is not None:
        return [failure if isinstance(answer, list) else answer for answer in answers]
    return answers
