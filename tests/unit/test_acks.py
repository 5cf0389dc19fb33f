"""Acks stored as columns behave like a list of acks."""

from __future__ import annotations

import pytest

from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem, AckOutcome, Outcomes, UniformAcks

_A, _B = PartitionId(0, 1), PartitionId(0, 2)


def test_acks_that_say_the_same_are_a_sequence_of_items() -> None:
    acks = UniformAcks(
        {(_A, "1.lease"): [0, 2], (_B, None): [1]},
        {(_A, "1.lease"): [10, 11], (_B, None): [20]},
        lambda: ["a", "b", "c"],
    )
    items = [
        AckItem(transaction_id="a", partition=_A, lease="1.lease", position=10),
        AckItem(transaction_id="b", partition=_B, position=20),
        AckItem(transaction_id="c", partition=_A, lease="1.lease", position=11),
    ]
    assert len(acks) == 3
    assert list(acks) == items
    assert acks[-1] == items[-1]
    assert acks[1:] == items[1:]
    with pytest.raises(IndexError):
        acks[3]
    verdict = AckItem(transaction_id="any", partition=_B, status="failed", error="no\0 luck", delay_ms=5)
    verdict.check()
    failed = UniformAcks({(_A, None): range(1)}, {(_A, None): [10]}, lambda: ["a"], verdict)
    assert failed[0] == AckItem(
        transaction_id="a", partition=_A, status="failed", error="no\ufffd luck", delay_ms=5, position=10
    )
    with pytest.raises(InvalidRequest):
        AckItem(transaction_id="any", partition=_A, status="finished").check()  # type: ignore[arg-type]


def test_the_last_word_on_an_item_counts_and_the_others_are_not_answered() -> None:
    acks = UniformAcks({(_A, "1.lease"): range(3)}, {(_A, "1.lease"): range(10, 13)}, lambda: ["a", "b", "c"])
    outcomes = Outcomes(acks)
    outcomes.add(range(2), AckOutcome(True, "", lease_released=True))
    before = outcomes.copy()
    outcomes.add([1], AckOutcome(False, "", code="committed"))
    assert outcomes == [
        AckOutcome(True, "a", lease_released=True),
        AckOutcome(False, "b", code="committed"),
        AckOutcome(False, "c"),
    ]
    assert before[1] == AckOutcome(True, "b", lease_released=True)
    assert (len(outcomes), outcomes[-1].transaction_id, [each.success for each in outcomes]) == (
        3,
        "c",
        [True, False, False],
    )


def test_ids_of_completed_acks_are_asked_for_when_an_outcome_is_looked_at() -> None:
    asked: list[bool] = []

    def ids() -> list[str]:
        asked.append(True)
        return ["a"]

    acks = UniformAcks({(_A, "1.lease"): range(1)}, {(_A, "1.lease"): range(10, 11)}, ids)
    outcomes = Outcomes(acks)
    outcomes.add(range(1), AckOutcome(True, ""))
    assert len(outcomes) == 1
    assert not asked
    assert outcomes[0].transaction_id == "a"
    assert asked == [True]
