"""Acks that the store does not take: into the journal, if that does no harm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fairlane.engine.ack import AckRequest
from fairlane.engine.held_lanes import HeldLanes
from fairlane.engine.kept import ack_entry, ack_lane
from fairlane.errors import FairlaneError, StoreUnavailable
from fairlane.model.outcome import AckItem, AckOutcome
from fairlane.store.journal import Lane, NewEntry

AckAnswers = list[Sequence[AckOutcome] | Exception]
_UNFENCED = (
    "a nack without a lease cannot be kept until the store takes it, for it could count twice; say it with the lease, "
    "or try again"
)


def unfenced(request: AckRequest) -> bool:
    """Whether it has a nack without a lease, which counts twice when it is applied twice."""
    return any(item.lease is None and item.status not in ("completed", "success") for item in request.items)


async def keep_acks(requests: list[AckRequest], held: HeldLanes, error: FairlaneError, *, doubtful: bool) -> AckAnswers:
    """What the journal holds may be applied twice. An ack changes nothing then, and a nack neither while its lease
    fences it; a nack without a lease would count twice, so that it is not kept."""
    answers: AckAnswers = []
    entries: list[NewEntry] = []
    room = held.journal.room()
    for request in requests:
        lanes: dict[Lane, list[AckItem]] = defaultdict(list)
        for item in request.items:
            lanes[ack_lane(request, item)].append(item)
        mine = [ack_entry(lane, items) for lane, items in lanes.items()]
        size = sum(entry.size for entry in mine)
        if unfenced(request):
            answers.append(error if doubtful else StoreUnavailable(_UNFENCED))
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
