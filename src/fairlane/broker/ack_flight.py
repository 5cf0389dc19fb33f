"""Acks in flight: requests of one flush, and acks that are applied with a pop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from fairlane.broker.ack_plan import LOCKED, Plan
from fairlane.errors import LaneLocked, Unavailable, as_outcome_unknown
from fairlane.model.outcome import AckOutcome, Outcomes

if TYPE_CHECKING:
    from fairlane.broker.ack import AckRequest

Answers = list[Sequence[AckOutcome] | Exception]


class AckFlight(msgspec.Struct):
    """Ack requests in flight to the store, as acks of lanes."""

    requests: list[AckRequest]
    outcomes: list[Outcomes]
    answers: Answers
    unsettled: list[tuple[int, Plan]] = []
    """Plans that are not settled yet, each with the number of its request."""
    locked: list[tuple[int, Plan]] = []
    applied: set[int] = set()
    """Numbers of the requests with an applied plan."""
    in_parts: bool = False
    """True if the rest of some plan was applied in a call of its own, because a failure in it came too late."""

    def mark_locked(self, number: int, plan: Plan) -> None:
        """Set a plan aside, because its lane is locked, together with later plans of the same lane."""
        self.locked.append((number, plan))
        self.locked += [one for one in self.unsettled if one[1].lane == plan.lane]
        self.unsettled = [one for one in self.unsettled if one[1].lane != plan.lane]

    def locked_error(self, number: int) -> Unavailable:
        error = LaneLocked(LOCKED)
        return as_outcome_unknown(error) if number in self.applied else error


class AttachedAcks(msgspec.Struct):
    """Acks of a request that also pops. The first claim of the pop applies them."""

    request: AckRequest
    plans: list[Plan]
    outcomes: Outcomes
    pending: Sequence[int]
    """Indexes of the items without an outcome."""
    began: float

    def rest(self) -> AckRequest:
        """Return a request with the pending items."""
        items = self.request.items
        if len(self.pending) == len(items):
            return self.request
        return msgspec.structs.replace(self.request, items=[items[index] for index in self.pending])

    def settle(self, pending: Sequence[int], outcomes: Sequence[AckOutcome]) -> None:
        """Add the outcomes of items that were pending. A pop that timed out may have applied some of them meanwhile."""
        for index, outcome in zip(pending, outcomes, strict=True):
            self.outcomes.add([index], outcome)
        self.pending = ()
