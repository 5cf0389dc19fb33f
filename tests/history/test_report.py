"""The figures of a report."""

from __future__ import annotations

from fairlane.verify.history import FaultSpan, LaneName, PushRecord, RecordedHistory
from fairlane.verify.report import bound
from fairlane.verify.timeline import recoveries

LANE = LaneName("plain", "p0")


def pushed(began: float, ended: float) -> PushRecord:
    return PushRecord(LANE, f"{began}", began, ended, "done")


def test_the_bound_is_three_by_the_trials() -> None:
    assert bound(3000, 0) == "≤ 0.10 %"
    assert bound(3000, 1) == "", "a promise that was broken has no bound"


def test_a_recovery_counts_from_the_end_of_a_fault() -> None:
    history = RecordedHistory(pushes=[pushed(1, 2), pushed(5.5, 6.0)], faults=[FaultSpan("black_hole", 3, 5)])
    assert recoveries(history) == {"black_hole": [1.0]}


def test_a_recovery_counts_from_a_kill_also_by_a_push_that_was_waiting() -> None:
    history = RecordedHistory(pushes=[pushed(2.5, 5.5), pushed(6, 7)], faults=[FaultSpan("kill_broker", 3, 5)])
    assert recoveries(history) == {"kill_broker": [2.5]}
