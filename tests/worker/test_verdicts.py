"""The acks that a worker must send, and those that it can leave out."""

from __future__ import annotations

from fairlane.model.batch import Batch
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem, AckStatus
from fairlane.runtime.claim import Claim, Report
from fairlane.runtime.settler import merged
from fairlane.worker.handlers import breadth

LANE, OTHER = PartitionId(0, 1), PartitionId(0, 2)


def item(
    name: str, partition: PartitionId = LANE, status: AckStatus = "completed", *, lease: str = "l", result: bytes = b""
) -> AckItem:
    return AckItem(transaction_id=name, partition=partition, status=status, lease=lease, result=result or None)


def sent(*items: AckItem, ordered: bool = True) -> list[str]:
    claim = Claim(Batch("l", [], ordered=ordered))
    told, claims = merged([Report(claim, 1, items=[one]) for one in items])
    assert claims == [claim] * len(told)
    return [one.transaction_id for one in told]


def test_of_messages_that_are_done_in_a_row_the_last_of_each_lane_is_told() -> None:
    assert sent(item("a"), item("b"), item("x", OTHER), item("c"), item("y", OTHER)) == ["c", "y"]
    assert sent(item("a"), item("b", lease="m")) == ["a", "b"], "each lease is acked for itself"


def test_only_who_speaks_for_others_says_so() -> None:
    claim = Claim(Batch("l", [], ordered=True))
    some = [item("a"), item("x", OTHER), item("b"), item("c", status="failed")]
    told, _ = merged([Report(claim, 1, items=[one]) for one in some])
    assert [(one.transaction_id, one.cumulative) for one in told] == [("b", True), ("x", False), ("c", False)]


def test_what_is_more_than_done_is_told_and_nothing_is_taken_to_be_done_with_it() -> None:
    assert sent(item("a"), item("b", status="failed"), item("c")) == ["a", "b", "c"]
    assert sent(item("a"), item("b", status="dlq"), item("c"), item("d")) == ["a", "b", "d"]
    assert sent(item("a"), item("b", result=b"1"), item("c")) == ["a", "b", "c"]


def test_each_message_of_an_unordered_queue_is_told() -> None:
    assert sent(item("a"), item("b"), item("c"), ordered=False) == ["a", "b", "c"]


def test_a_pop_looks_at_about_as_many_lanes_as_it_needs() -> None:
    assert breadth(1000, 20.0) == 100
    assert breadth(1000, 1.0) == breadth(1000, 0.0) == 1000
    assert breadth(1000, 500.0) == 16
    assert breadth(3, 500.0) == 3
