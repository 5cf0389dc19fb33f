"""Acks held as columns read like a list of acks."""

from __future__ import annotations

import pytest

from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem, Completed

_A, _B = PartitionId(0, 1), PartitionId(0, 2)


def test_completed_acks_are_a_sequence_of_items() -> None:
    acks = Completed({(_A, "1.lease"): [0, 2], (_B, None): [1]}, [10, 20, 11], lambda: ["a", "b", "c"])
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
