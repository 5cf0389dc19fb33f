"""Acks into the journal, when the store does not take them, if that does no harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from fairlane.broker.ack import AckRequest
from fairlane.broker.ack_plan import lanes_of
from fairlane.broker.journal_backlogs import JournalBacklogs
from fairlane.broker.journal_codec import ack_backlog, ack_entry
from fairlane.errors import FairlaneError, StoreUnavailable
from fairlane.model.ids import Uuid7
from fairlane.model.outcome import AckOutcome, OperationReason, Outcomes
from fairlane.store.contract.journal import Backlog, NewEntry

AckAnswers = list[Sequence[AckOutcome] | Exception]
_UNFENCED = (
    "a nack without a lease cannot wait in the journal, for it could count twice; say it with the lease, or try again"
)


def unfenced(request: AckRequest) -> bool:
    """Whether it has a nack without a lease, which counts twice when it is applied twice."""
    return any(item.lease is None and item.status not in ("completed", "success") for item in request.items)


async def append_acks(
    requests: list[AckRequest],
    backlogs: JournalBacklogs,
    ids: Uuid7,
    error: FairlaneError,
    *,
    doubtful: bool,
    reason: OperationReason = "store_unavailable",
) -> AckAnswers:
    """What the journal holds may be applied twice. An ack changes nothing then, and a nack neither while its lease
    fences it; a nack without a lease would count twice, so that it is refused."""
    answers: AckAnswers = []
    entries: list[NewEntry] = []
    room, wait = backlogs.journal.room(), backlogs.estimate()
    added: Counter[Backlog] = Counter()
    for request in requests:
        items = request.items
        parts = list(lanes_of(items).values())  # by lease as well, as operations are
        mine = [
            ack_entry(ack_backlog(request, items[some[0]]), [items[index] for index in some], UUID(ids()))
            for some in parts
        ]
        size = sum(entry.size for entry in mine)
        if unfenced(request):
            answers.append(error if doubtful else StoreUnavailable(_UNFENCED))
        elif size > room:
            answers.append(error if doubtful else backlogs.full())
        else:
            room -= size
            entries += mine
            outcomes = Outcomes(items)
            for some, entry in zip(parts, mine, strict=True):
                added[entry.backlog] += 1
                outcome = AckOutcome(True, "", operation_id=str(entry.id), durability="journal")
                outcome.queue_position = backlogs.count(entry.backlog) + added[entry.backlog]
                outcome.reason, outcome.estimated_wait = reason, wait
                outcomes.add(some, outcome)
            answers.append(outcomes)
    failure = await backlogs.append(entries) if entries else None
    if failure is not None:
        return [failure if isinstance(answer, Outcomes) else answer for answer in answers]
    return answers
