"""The checks of a history accept a good one and find each kind of broken promise."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from fairlane.verify.history import (
    AckRecord,
    Conserved,
    DeliveryRecord,
    FanInRecord,
    Fate,
    FaultSpan,
    LaneName,
    LetterRecord,
    PushRecord,
    RecordedHistory,
    UniqueRecord,
)
from fairlane.verify.promises import violations
from fairlane.verify.rules import TrafficRules

LEASE_SECONDS = 10.0
P0 = LaneName("plain", "p0")
ENDS = LaneName("ends", "p0")
BANK, POISON = LaneName("bank", "p0"), LaneName("poison", "p0")
RULES = TrafficRules(
    ordered=frozenset({"plain", "bank", "poison"}),
    settled=frozenset({("plain", "g"), ("bank", "g"), ("poison", "g"), ("later", "g")}),
    auto_acked=frozenset({("plain", "auto")}),
    tokens=frozenset({"bank"}),
    poisoned=frozenset({"poison"}),
    retry_limit=2,
    running={"few": 2},
    running_per_key={"keyed": 1},
    rates={"paced": (2, 5.0)},
    unique="single",
    encrypted="sealed",
    deleting=frozenset({"brief"}),
    fanned="ends",
    lease_seconds=LEASE_SECONDS,
)


def pushed(
    id: str, began: float, *, fate: Fate = "done", lane: LaneName = P0, broker: int = 0, journal: bool = False
) -> PushRecord:
    return PushRecord(lane, id, began, began + 0.5, fate, broker, journal)


def delivered(
    id: str, position: int, began: float, *, lease: str = "L1", group: str = "g", lane: LaneName = P0
) -> DeliveryRecord:
    return DeliveryRecord(lane, group, id, position, lease, began, began + 0.5)


def acked(
    id: str,
    began: float,
    *,
    lease: str = "L1",
    status: str = "completed",
    fate: Fate = "done",
    lane: LaneName = P0,
    pushed: str | None = None,
) -> AckRecord:
    return AckRecord(lane, "g", id, lease, status, began, began + 0.5, fate, pushed)


def good() -> RecordedHistory:
    """Return a history in which every promise is kept: two messages, a token with two hops, a replayed dead letter."""
    history = RecordedHistory()
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
    history.dead = [LetterRecord(POISON, "poison-1", 3)]
    history.fan_ins = [FanInRecord("fan", "g", [(P0, "a"), (P0, "b")], 1, 2, "done")]
    history.log[ENDS] = ["fan"]
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


def test_a_lease_that_ran_out_released_or_nacked_may_be_followed_by_another() -> None:
    for status in ("released", "failed", "retry"):
        history = good()
        history.acks[1:2] = [acked("b", 5, status=status), acked("b", 8, lease="L2")]
        history.deliveries.append(delivered("b", 1, 6, lease="L2"))
        assert violations(history, RULES) == []
    history = good()
    history.acks[1] = acked("b", 16, lease="L2")
    history.deliveries.append(delivered("b", 1, 3 + LEASE_SECONDS, lease="L2"))
    assert violations(history, RULES) == []


def test_leases_are_not_compared_with_the_clock_while_that_is_stepped() -> None:
    history = good()
    lease_twice(history)
    assert any("got the lease L2" in violation for violation in violations(history, RULES))
    history.faults.append(FaultSpan("step_clock_of_server", 3.5, 4))
    assert not any("got the lease L2" in violation for violation in violations(history, RULES))


def test_what_waits_in_a_journal_may_follow_later_pushes_through_another_broker_only() -> None:
    history = good()
    history.pushes[:2] = [pushed("b", 1, fate="deferred", broker=1, journal=True), pushed("a", 2, broker=0)]
    assert violations(history, RULES) == []
    history.pushes[1] = pushed("a", 2, broker=1)
    [violation] = violations(history, RULES)
    assert "a was pushed after b was accepted" in violation


def forget(history: RecordedHistory) -> None:
    history.pushes.append(pushed("brief-1", 1, lane=LaneName("brief", "p0")))


def run_too_many(history: RecordedHistory) -> None:
    few = [LaneName("few", f"p{number}") for number in range(3)]
    history.deliveries += [delivered(f"m{lane.partition}", 0, 30, lane=lane, lease=lane.partition) for lane in few]
    history.log |= {lane: [f"m{lane.partition}"] for lane in few}
    history.pushes += [pushed(f"m{lane.partition}", 1, lane=lane) for lane in few]


def run_too_many_of_a_key(history: RecordedHistory) -> None:
    lanes = [LaneName("keyed", f"p0!{number}") for number in range(2)]
    history.deliveries += [delivered(f"k{lane.partition}", 0, 30, lane=lane, lease=lane.partition) for lane in lanes]
    history.log |= {lane: [f"k{lane.partition}"] for lane in lanes}
    history.pushes += [pushed(f"k{lane.partition}", 1, lane=lane) for lane in lanes]


def deliver_paced(history: RecordedHistory, *times: float) -> None:
    """Deliver messages of a queue with the rate `2/5s`, each from a partition of its own."""
    lanes = [LaneName("paced", f"p{number}") for number in range(len(times))]
    history.pushes += [pushed(f"r{lane.partition}", 1, lane=lane) for lane in lanes]
    history.log |= {lane: [f"r{lane.partition}"] for lane in lanes}
    history.deliveries += [
        delivered(f"r{lane.partition}", 0, at, lane=lane, lease=lane.partition)
        for lane, at in zip(lanes, times, strict=True)
    ]


def exceed_the_rate(history: RecordedHistory) -> None:
    deliver_paced(history, 30, 31, 33)


def test_deliveries_that_may_lie_in_two_periods_keep_the_rate() -> None:
    history = good()
    deliver_paced(history, 30, 31, 34.6)
    assert violations(history, RULES) == []


def store_two_unique(history: RecordedHistory, acked_at: float) -> None:
    """Store two messages with one unique key, pushed at 1 and 3."""
    lane = LaneName("single", "p0")
    history.pushes += [pushed("u1", 1, lane=lane), pushed("u2", 3, lane=lane)]
    history.uniques += [UniqueRecord("k", "u1", 1, 1.5, "done"), UniqueRecord("k", "u2", 3, 3.5, "done")]
    history.log[lane] = ["u1", "u2"]
    history.acks.append(acked("u1", acked_at, lane=lane))


def store_beside_unique(history: RecordedHistory) -> None:
    store_two_unique(history, acked_at=4)


def refuse_for_nothing(history: RecordedHistory) -> None:
    history.uniques.append(UniqueRecord("k", "u9", 1, 2, "refused", "nowhere"))


def test_a_unique_message_may_follow_one_that_may_be_finished() -> None:
    history = good()
    store_two_unique(history, acked_at=3.2)
    assert violations(history, RULES) == []


def store_in_clear(history: RecordedHistory) -> None:
    history.in_clear.append("sealed")


def lose_a_callback(history: RecordedHistory) -> None:
    history.log[ENDS].remove("fan")


def call_back_early(history: RecordedHistory) -> None:
    history.deliveries.append(delivered("fan", 0, 4, lane=ENDS))


def lose_a_part(history: RecordedHistory) -> None:
    history.fan_ins[0].parts.append((P0, "c"))


def lose(history: RecordedHistory) -> None:
    history.log[P0].remove("b")


def double(history: RecordedHistory) -> None:
    history.log[P0].append("a")


def invent(history: RecordedHistory) -> None:
    history.log[P0].append("x")


def store_what_was_refused(history: RecordedHistory) -> None:
    history.pushes[1] = pushed("b", 2, fate="refused")


def reorder(history: RecordedHistory) -> None:
    history.log[P0].reverse()


def finish_without_ack(history: RecordedHistory) -> None:
    del history.acks[1]


def overtake(history: RecordedHistory) -> None:
    history.deliveries[:2] = [delivered("b", 1, 3), delivered("a", 0, 3.6, lease="L2")]


def repeat_in_one_answer(history: RecordedHistory) -> None:
    history.deliveries.insert(2, delivered("a", 0, 3))


def move_a_message(history: RecordedHistory) -> None:
    history.deliveries[1] = delivered("b", 7, 3)


def deliver_after_ack(history: RecordedHistory) -> None:
    history.deliveries.append(delivered("b", 1, 20, lease="L9"))


def complete_twice(history: RecordedHistory) -> None:
    history.acks.append(acked("b", 21, lease="L9"))


def auto_ack_twice(history: RecordedHistory) -> None:
    history.deliveries.append(delivered("b", 1, 20, group="auto", lease=""))


def auto_ack_backwards(history: RecordedHistory) -> None:
    history.deliveries[2:4] = [delivered("b", 1, 4, group="auto"), delivered("a", 0, 5, group="auto")]


def lose_a_hop(history: RecordedHistory) -> None:
    history.log[BANK].remove("t-1")


def repeat_a_hop(history: RecordedHistory) -> None:
    history.log[BANK].append("t-1")


def lose_a_token(history: RecordedHistory) -> None:
    history.log[BANK].append("t-2")
    history.acks.append(acked("t-2", 9, lane=BANK, fate="unknown", pushed="t-3"))


def push_what_was_refused(history: RecordedHistory) -> None:
    history.acks[2] = acked("t-0", 4, lane=BANK, pushed="t-1", fate="refused")


def lose_a_letter(history: RecordedHistory) -> None:
    history.dead.clear()


def double_a_letter(history: RecordedHistory) -> None:
    history.dead.append(LetterRecord(POISON, "poison-1", 3))


def give_up_early(history: RecordedHistory) -> None:
    history.dead = [LetterRecord(POISON, "poison-1", 2)]


def complete_a_letter(history: RecordedHistory) -> None:
    history.acks.append(acked("poison-1", 5, lane=POISON))


def replay_twice(history: RecordedHistory) -> None:
    history.log[POISON].append("copy2")
    history.copies["copy2"] = "poison-1"


def replay_unasked(history: RecordedHistory) -> None:
    history.replays.clear()


def corrupt(history: RecordedHistory) -> None:
    history.deliveries[0] = msgspec.structs.replace(history.deliveries[0], intact=False)


def lease_twice(history: RecordedHistory) -> None:
    history.deliveries.append(delivered("b", 1, 4, lease="L2"))
    history.acks[1] = acked("b", 6)


def ack_as_a_zombie(history: RecordedHistory) -> None:
    history.deliveries.append(delivered("b", 1, 14, lease="L2"))
    history.acks[1] = acked("b", 20)


def repeat_without_cause(history: RecordedHistory) -> None:
    later = LaneName("later", "p0")
    history.log[later] = ["m"]
    history.pushes.append(pushed("m", 1, lane=later))
    history.deliveries += [delivered("m", 0, 3, lane=later), delivered("m", 0, 5, lease="L2", lane=later)]
    history.acks.append(acked("m", 6, lease="L2", lane=later))


def count_differently(history: RecordedHistory) -> None:
    history.conserved.append(Conserved(P0, "g", {"log": 2, "SQL": 1}, {}, {}))


def answer_oddly(history: RecordedHistory) -> None:
    history.odd_answers.append("GET / was answered 500")


def get_stuck(history: RecordedHistory) -> None:
    history.stuck.append("operations wait")


BREAKS: dict[Callable[[RecordedHistory], None], str] = {
    forget: "brief-1 was accepted (done) and is gone",
    run_too_many: "at most 2 may run",
    run_too_many_of_a_key: "at most 1 may run",
    exceed_the_rate: "g got 3 messages in 5 s; at most 2 may be delivered",
    store_beside_unique: "a message with k was stored before u1 was finished",
    refuse_for_nothing: "u9 was refused because of nowhere, which is not stored",
    store_in_clear: "sealed is encrypted, and SQL shows payloads in clear",
    lose_a_callback: "fan-in fan (done) was called back 0 times",
    call_back_early: "fan-in fan was called back before its part a had ended",
    lose_a_part: "fan-in fan (done) has 2 of its 3 parts",
    lose: "b was accepted (done) and lost",
    double: "a was stored 2 times",
    invent: "x is in the log and nobody pushed it",
    store_what_was_refused: "b was refused and stored",
    reorder: "b was pushed after a was accepted",
    finish_without_ack: "nobody acked b",
    overtake: "got b before a was finished",
    repeat_in_one_answer: "got positions [0, 1, 0] in one answer",
    move_a_message: "got b at 7, where the log has another",
    deliver_after_ack: "got b again after it was finished",
    complete_twice: "completed b under 2 leases",
    auto_ack_twice: "got b 2 times by auto-ack",
    auto_ack_backwards: "got a after b",
    lose_a_hop: "its t-1 is lost",
    repeat_a_hop: "t has the hops [0, 1, 1]",
    lose_a_token: "t-2 was completed by a transaction whose t-3 is lost",
    push_what_was_refused: "was refused, and its t-1 is there",
    lose_a_letter: "poison-1 is no dead letter",
    double_a_letter: "poison-1 is 2 dead letters",
    give_up_early: "poison-1 is a dead letter after 2 attempts of 3",
    complete_a_letter: "poison-1 is a dead letter and completed",
    replay_twice: "poison-1 was replayed (done) and stored 2 times",
    replay_unasked: "poison-1 was stored again and nobody replayed it",
    corrupt: "got a with another payload",
    lease_twice: "got the lease L2 1.50 s after L1",
    ack_as_a_zombie: "applied an ack of b under L1, after L2 was given",
    repeat_without_cause: "got m again 2.50 s later without a cause",
    count_differently: "counts stored messages differently (log: 2, SQL: 1)",
    answer_oddly: "was answered 500",
    get_stuck: "operations wait",
}


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
def test_a_broken_promise_is_found(broken: Callable[[RecordedHistory], None]) -> None:
    history = good()
    broken(history)
    assert any(BREAKS[broken] in violation for violation in violations(history, RULES))
