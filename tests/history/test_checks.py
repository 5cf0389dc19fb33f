"""The checks of a history accept a good one and find each kind of broken promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.history.checks import violations
from tests.history.record import Ack, DeadLetter, Delivery, Fate, History, Lane, Push, Rules

P0 = Lane("plain", "p0")
BANK, POISON = Lane("bank", "p0"), Lane("poison", "p0")
RULES = Rules(
    ordered=frozenset({"plain", "bank", "poison"}),
    settled=frozenset({("plain", "g"), ("bank", "g"), ("poison", "g")}),
    auto_acked=frozenset({("plain", "auto")}),
    tokens=frozenset({"bank"}),
    poisoned=frozenset({"poison"}),
)


def pushed(
    id: str, began: float, *, fate: Fate = "done", lane: Lane = P0, broker: int = 0, journal: bool = False
) -> Push:
    return Push(lane, id, began, began + 0.5, fate, broker, journal)


def delivered(
    id: str, position: int, began: float, *, lease: str = "L1", group: str = "g", lane: Lane = P0
) -> Delivery:
    return Delivery(lane, group, id, position, lease, began, began + 0.5)


def acked(
    id: str,
    began: float,
    *,
    lease: str = "L1",
    status: str = "completed",
    fate: Fate = "done",
    lane: Lane = P0,
    pushed: str | None = None,
) -> Ack:
    return Ack(lane, "g", id, lease, status, began, began + 0.5, fate, pushed)


def good() -> History:
    """Return a history in which every promise is kept: two messages, a token with two hops, a replayed dead letter."""
    history = History()
    history.pushes = [pushed("a", 1), pushed("b", 2), pushed("t-0", 1, lane=BANK), pushed("poison-1", 1, lane=POISON)]
    history.log |= {P0: ["a", "b"], BANK: ["t-0", "t-1"], POISON: ["poison-1", "copy"]}
    history.deliveries = [
        delivered("a", 0, 3),
        delivered("b", 1, 3),
        delivered("a", 0, 4, group="auto", lease=""),
        delivered("b", 1, 5, group="auto", lease=""),
        delivered("t-0", 0, 3, lane=BANK),
        delivered("t-1", 1, 6, lane=BANK, lease="L2"),
        delivered("poison-1", 0, 3, lane=POISON),
        delivered("copy", 1, 8, lane=POISON, lease="L2"),
    ]
    history.acks = [
        acked("a", 5),
        acked("b", 5),
        acked("t-0", 4, lane=BANK, pushed="t-1"),
        acked("t-1", 7, lane=BANK, lease="L2"),
        acked("poison-1", 4, lane=POISON, status="failed"),
        acked("copy", 9, lane=POISON, lease="L2"),
    ]
    history.dead = [DeadLetter(POISON, "poison-1")]
    history.replays, history.copies = {"poison-1": "done"}, {"copy": "poison-1"}
    return history


def test_a_history_that_keeps_every_promise_has_no_violations() -> None:
    assert violations(good(), RULES) == []


def test_an_unknown_push_may_be_stored_once_or_not_at_all() -> None:
    history = good()
    history.pushes += [pushed("c", 3, fate="unknown"), pushed("d", 3, fate="unknown")]
    history.log[P0].append("c")
    history.deliveries.append(delivered("c", 2, 9, lease="L3"))
    history.acks.append(acked("c", 10, lease="L3"))
    assert violations(history, RULES) == []


def test_what_waits_in_a_journal_may_follow_later_pushes_through_another_broker_only() -> None:
    history = good()
    history.pushes[:2] = [pushed("b", 1, fate="deferred", broker=1, journal=True), pushed("a", 2, broker=0)]
    assert violations(history, RULES) == []
    history.pushes[1] = pushed("a", 2, broker=1)
    [violation] = violations(history, RULES)
    assert "a was pushed after b was accepted" in violation


def lose(history: History) -> None:
    history.log[P0].remove("b")


def double(history: History) -> None:
    history.log[P0].append("a")


def invent(history: History) -> None:
    history.log[P0].append("x")


def store_what_was_refused(history: History) -> None:
    history.pushes[1] = pushed("b", 2, fate="refused")


def reorder(history: History) -> None:
    history.log[P0].reverse()


def finish_without_ack(history: History) -> None:
    del history.acks[1]


def overtake(history: History) -> None:
    history.deliveries[:2] = [delivered("b", 1, 3), delivered("a", 0, 3.6, lease="L2")]


def repeat_in_one_answer(history: History) -> None:
    history.deliveries.insert(2, delivered("a", 0, 3))


def move_a_message(history: History) -> None:
    history.deliveries[1] = delivered("b", 7, 3)


def deliver_after_ack(history: History) -> None:
    history.deliveries.append(delivered("b", 1, 20, lease="L9"))


def complete_twice(history: History) -> None:
    history.acks.append(acked("b", 21, lease="L9"))


def auto_ack_twice(history: History) -> None:
    history.deliveries.append(delivered("b", 1, 20, group="auto", lease=""))


def auto_ack_backwards(history: History) -> None:
    history.deliveries[2:4] = [delivered("b", 1, 4, group="auto"), delivered("a", 0, 5, group="auto")]


def lose_a_hop(history: History) -> None:
    history.log[BANK].remove("t-1")


def repeat_a_hop(history: History) -> None:
    history.log[BANK].append("t-1")


def push_what_was_refused(history: History) -> None:
    history.acks[2] = acked("t-0", 4, lane=BANK, pushed="t-1", fate="refused")


def lose_a_letter(history: History) -> None:
    history.dead.clear()


def double_a_letter(history: History) -> None:
    history.dead.append(DeadLetter(POISON, "poison-1"))


def complete_a_letter(history: History) -> None:
    history.acks.append(acked("poison-1", 5, lane=POISON))


def replay_twice(history: History) -> None:
    history.log[POISON].append("copy2")
    history.copies["copy2"] = "poison-1"


def replay_unasked(history: History) -> None:
    history.replays.clear()


def answer_oddly(history: History) -> None:
    history.odd_answers.append("GET / was answered 500")


def get_stuck(history: History) -> None:
    history.stuck.append("operations wait")


BREAKS: dict[Callable[[History], None], str] = {
    lose: "b was accepted (done) and lost",
    double: "a was stored 2 times",
    invent: "x is in the log and nobody pushed it",
    store_what_was_refused: "b was refused and stored",
    reorder: "b was pushed after a was accepted",
    finish_without_ack: "nobody acked b",
    overtake: "got b before a was finished",
    repeat_in_one_answer: "got positions [0, 1, 0] in one answer",
    move_a_message: "got b at 7, where the log has another",
    deliver_after_ack: "got b again after its ack had been applied",
    complete_twice: "completed b under 2 leases",
    auto_ack_twice: "got b 2 times by auto-ack",
    auto_ack_backwards: "got a after b",
    lose_a_hop: "its t-1 is lost",
    repeat_a_hop: "t has the hops [0, 1, 1]",
    push_what_was_refused: "was refused, and its t-1 is there",
    lose_a_letter: "poison-1 is no dead letter",
    double_a_letter: "poison-1 is 2 dead letters",
    complete_a_letter: "poison-1 is a dead letter and completed",
    replay_twice: "poison-1 was replayed (done) and stored 2 times",
    replay_unasked: "poison-1 was stored again and nobody replayed it",
    answer_oddly: "was answered 500",
    get_stuck: "operations wait",
}


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
def test_a_broken_promise_is_found(broken: Callable[[History], None]) -> None:
    history = good()
    broken(history)
    assert any(BREAKS[broken] in violation for violation in violations(history, RULES))
