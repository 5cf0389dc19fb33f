"""Tests of the model itself, on the cases of the documentation."""

from __future__ import annotations

import pytest

from tests.stateful.model import SECOND, Answer, Queue, Word

OPTIONS = {
    "retry_limit": 1,
    "retry_delay_ms": 0,
    "retry_delay_max_ms": 60_000,
    "max_size": 0,
    "dedup_seconds": 60,
    "lease_seconds": 10,
}


class Bench:
    """One queue, one group that starts at the beginning, and a manual clock."""

    def __init__(self, *pushed: str, **options: int) -> None:
        self.queue, self.now, self.made = Queue({**OPTIONS, **options}), 1000 * SECOND, 0
        for partition in pushed:
            self.push(partition)
        self.queue.seek("g", "all", 0, self.now)

    def push(self, *partitions: str, tx: str | None = None) -> list[tuple[str, str, int]]:
        self.made += len(partitions)
        ids = [(f"m{self.made}{n}", tx or f"t{self.made}{n}") for n, _ in enumerate(partitions)]
        return self.queue.push([(partition, tx, None) for partition in partitions], ids, self.now)

    def pop(self, lease: str = "l", batch: int = 10, most: int = 1) -> list[tuple[str, int, int]]:
        ends_at = self.now + 10 * SECOND
        taken = self.queue.pop("g", lease, batch, most, ends_at, self.now, lambda r: sorted(r, key=lambda n: r[n]))
        return [(partition, position, attempts) for partition, position, _, attempts in taken]

    def ack(self, *statuses: tuple[int, str], lease: str | None = "l") -> list[Answer]:
        words = [Word("a", "", status, lease, "why", position=position) for position, status in statuses]
        return self.queue.ack("g", words, self.now)


def test_a_batch_comes_in_order_and_once() -> None:
    bench = Bench("a", "a", "a")
    assert bench.pop(batch=2) == [("a", 0, 0), ("a", 1, 0)]
    assert bench.pop("other") == []
    assert bench.ack((0, "completed")) == [Answer()]
    assert bench.ack((1, "completed")) == [Answer(released=True)]
    assert bench.pop() == [("a", 2, 0)]


def test_acking_the_middle_finishes_it_alone_and_repeats_are_no_ops() -> None:
    bench = Bench("a", "a", "a")
    bench.pop()
    assert bench.ack((1, "completed")) == [Answer()]
    assert bench.ack((1, "completed")) == [Answer(noop=True)]
    assert bench.ack((1, "failed")) == [Answer("committed")]
    assert bench.ack((0, "completed")) == [Answer()]
    assert bench.ack((0, "completed")) == [Answer(noop=True)]
    assert bench.ack((2, "success")) == [Answer(released=True)]
    assert bench.ack((2, "success")) == [Answer(noop=True)]
    assert bench.ack((2, "failed")) == [Answer("lease_lost")]


def test_a_failed_item_clamps_the_cursor_and_what_follows_comes_again() -> None:
    bench = Bench("a", "a", "a")
    bench.pop()
    answers = bench.ack((0, "completed"), (1, "failed"), (2, "completed"))
    assert answers == [Answer(released=True), Answer(released=True), Answer("redelivered")]
    assert bench.pop() == [("a", 1, 1), ("a", 2, 0)]


def test_the_last_attempt_dead_letters_and_the_lane_goes_on() -> None:
    bench = Bench("a", "a")
    bench.pop()
    bench.ack((0, "failed"))
    bench.pop()
    assert bench.ack((0, "failed")) == [Answer(dead=True, released=True)]
    assert bench.queue.groups["g"]["a"].letters == {0: ("why", 2, bench.now, False)}
    assert bench.pop() == [("a", 1, 0)]


def test_a_failed_message_is_charged_and_what_is_open_before_it_stays_open() -> None:
    bench = Bench("a", "a", "a")
    bench.pop()
    assert bench.ack((1, "failed")) == [Answer(released=True)]
    assert bench.pop() == [("a", 0, 0), ("a", 1, 0), ("a", 2, 0)]
    assert bench.ack((1, "failed")) == [Answer(released=True)]
    assert bench.pop() == [("a", 0, 0)]
    bench.ack((0, "completed"))
    assert bench.pop() == [("a", 2, 0)]
    assert bench.queue.groups["g"]["a"].fates == ["acked", "dead"]


def test_a_retry_charges_nothing() -> None:
    bench = Bench("a", retry_limit=0)
    for _ in range(3):
        assert bench.pop() == [("a", 0, 0)]
        assert bench.ack((0, "retry")) == [Answer(released=True)]


def test_a_lost_lease_charges_the_first_message_and_isolates_the_batch() -> None:
    bench = Bench("a", "a", "a", "a")
    bench.pop(batch=3)
    bench.now += 10 * SECOND
    assert bench.ack((0, "completed")) == [Answer("lease_lost")]
    assert bench.pop() == [("a", 0, 1)]
    bench.now += 10 * SECOND
    assert bench.pop() == [("a", 1, 0)]
    assert bench.queue.groups["g"]["a"].letters == {0: ("Partition lease expired", 2, bench.now, False)}
    bench.ack((1, "completed"))
    assert bench.pop() == [("a", 2, 0)]
    bench.ack((2, "completed"))
    assert bench.pop() == [("a", 3, 0)]


def test_backoff_doubles_up_to_its_cap_and_other_lanes_go_on() -> None:
    bench = Bench("a", "b", retry_limit=9, retry_delay_ms=1000, retry_delay_max_ms=3000)
    for sleep in (1, 2, 3, 3):
        assert bench.pop()[0][0] == "a"
        bench.ack((0, "failed"))
        assert bench.queue.groups["g"]["a"].ready_at == bench.now + sleep * SECOND
        assert bench.pop("b")[0][0] == "b"
        bench.queue.groups["g"]["b"].rest(bench.now + sleep * SECOND)
        bench.now += sleep * SECOND


def test_lanes_are_served_longest_ready_first_within_the_batch() -> None:
    bench = Bench("a", "a")
    bench.now += 1
    bench.push("b", "b")
    assert bench.pop(batch=3, most=2) == [("a", 0, 0), ("a", 1, 0), ("b", 0, 0)]
    bench.now += 1
    bench.ack((0, "completed"), (1, "completed"))
    bench.push("a")
    assert bench.pop() == [("a", 2, 0)]


def test_a_known_transaction_id_is_a_duplicate_also_when_the_queue_is_full() -> None:
    bench = Bench(max_size=1)
    assert bench.push("a", "a", tx="x") == [("queued", "m20", 0), ("duplicate", "m20", 0)]
    assert bench.push("a") == [("refused", "", -1)]
    assert bench.push("a", tx="x") == [("duplicate", "m20", 0)]
    assert bench.push("b", tx="x") == [("refused", "", -1)]
    bench.now += 60 * SECOND
    assert bench.push("a", tx="x")[0][0] == "duplicate"
    bench.now += 1
    bench.queue.options["max_size"] = 2
    assert bench.push("a", tx="x") == [("queued", "m70", 1)]


def test_depth_is_that_of_the_slowest_group() -> None:
    bench = Bench("a", "a", "b")
    bench.queue.seek("late", "new", 0, bench.now)
    assert bench.queue.depth() == 3
    bench.queue.seek("g", "end", 0, bench.now, only="a")
    assert bench.queue.depth() == 1
    del bench.queue.groups["g"]
    assert bench.queue.depth() == 0


@pytest.mark.parametrize(("to", "at", "committed"), [("beginning", 0, 0), ("end", 0, 2), ("position", 9, 2)])
def test_a_seek_moves_the_cursor_and_ends_the_lease(to: str, at: int, committed: int) -> None:
    bench = Bench("a", "a")
    bench.pop()
    bench.queue.seek("g", to, at, bench.now)
    lane = bench.queue.groups["g"]["a"]
    assert (lane.committed, lane.lease, len(lane.fates)) == (committed, None, committed)


def test_a_seek_to_a_time_finds_the_first_message_at_or_after_it() -> None:
    bench = Bench("a")
    bench.now += 5
    bench.push("a")
    for at, committed in ((bench.now - 4, 1), (bench.now, 1), (bench.now + 1, 2)):
        bench.queue.seek("g", "time", at, bench.now)
        assert bench.queue.groups["g"]["a"].committed == committed


def test_an_ack_without_a_lease_finishes_what_another_holds() -> None:
    bench = Bench("a", "a")
    bench.pop()
    assert bench.ack((0, "completed"), lease=None) == [Answer()]
    assert bench.ack((1, "completed"), lease=None) == [Answer(released=True)]
    assert bench.ack((1, "completed")) == [Answer(noop=True)]
    assert bench.ack((1, "failed")) == [Answer("lease_lost")]


def test_a_lease_is_renewed_but_never_shortened() -> None:
    bench = Bench("a")
    bench.pop()
    assert bench.queue.renew("l", 5, bench.now) == [bench.now + 10 * SECOND]
    assert bench.queue.renew("l", 20, bench.now) == [bench.now + 20 * SECOND]
    bench.now += 20 * SECOND
    assert bench.queue.renew("l", 20, bench.now) == []
