"""Acks that are attached to a pop."""

from __future__ import annotations

from fairlane.broker.ack import AckRequest
from fairlane.broker.ack_flight import AttachedAcks
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem, AckOutcome, Outcomes


def test_acks_are_settled_although_a_pop_that_timed_out_applied_some_meanwhile() -> None:
    items = [AckItem(transaction_id=id, partition=PartitionId(0, 1)) for id in ("a", "b")]
    attached = AttachedAcks(AckRequest("", "g", items), [], Outcomes(items), [0, 1], 0.0)
    pending, repeated = attached.pending, attached.rest()
    attached.pending = [1]  # by the pop, whose timeout had passed
    attached.settle(pending, [AckOutcome(transaction_id=one.transaction_id, success=True) for one in repeated.items])
    assert [one.transaction_id for one in attached.outcomes] == ["a", "b"]
    assert not attached.pending
