"""Admission: thresholds by kind, a reason for each decision, and no flapping."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
from collections.abc import Sequence

import pytest

from fairlane.broker import Broker
from fairlane.engine.admission import (
    LIMITS,
    PATIENT,
    RETRY_SECONDS,
    RETRY_SECONDS_MAX,
    Admission,
    Decision,
    Gauge,
    Kind,
    Limit,
    Load,
    decide,
)
from fairlane.store.sqlite.store import SqliteStore
from fairlane.store.values import PushResult, Slice


@pytest.mark.parametrize(
    ("kind", "use", "depth", "verdict"),
    [
        ("push", 0.70, 10**9, "execute"),
        ("push", 0.71, 9_999, "enqueue"),
        ("push", 0.71, 10_000, "refuse"),
        ("ack", 0.80, 10**9, "execute"),
        ("ack", 0.81, 49_999, "enqueue"),
        ("ack", 0.81, 50_000, "refuse"),
        ("pop", 0.95, 10**9, "execute"),
        ("pop", 0.96, 0, "refuse"),
        ("renew", 1.0, 10**9, "execute"),
        ("transaction", 1.0, 10**9, "execute"),
        ("system_event", 1.0, 10**9, "execute"),
    ],
)
def test_each_kind_has_its_thresholds(kind: Kind, use: float, depth: int, verdict: str) -> None:
    assert decide(kind, Load(use, depth)).verdict == verdict


def test_thresholds_can_be_set() -> None:
    limits: dict[Kind, Limit] = {"push": Limit(0.2, 5)}
    assert decide("push", Load(0.21, 4), limits=limits).verdict == "enqueue"
    assert decide("push", Load(0.21, 5), limits=limits).verdict == "refuse"
    assert decide("ack", Load(1.0, 10**9), limits=limits).verdict == "execute"


def test_a_decision_says_why() -> None:
    reason = decide("push", Load(0.93, 12_345)).reason
    assert "93%" in reason
    assert "70%" in reason
    assert "12345" in reason
    assert "10000" in reason


def test_a_refused_caller_is_told_how_long_the_queue_takes_to_drain() -> None:
    assert decide("push", Load(1.0, 10_000)).retry_after == RETRY_SECONDS
    assert decide("push", Load(1.0, 10_000, 1_000.0)).retry_after == pytest.approx(2.0)
    assert decide("push", Load(1.0, 10_000, 1e9)).retry_after == 1.0
    assert decide("push", Load(1.0, 10_000, 0.001)).retry_after == RETRY_SECONDS_MAX
    assert decide("pop", Load(1.0)).retry_after == RETRY_SECONDS


def test_a_load_that_hovers_about_the_threshold_does_not_flip_the_answers() -> None:
    admission = Admission()
    uses = itertools.islice(itertools.cycle([0.71, 0.69, 0.72, 0.66, 0.71, 0.60]), 100)
    verdicts = [admission.decide("push", Load(use)).verdict for use in uses]
    assert set(verdicts) == {"enqueue"}
    assert admission.decide("push", Load(0.55)).verdict == "execute"
    assert admission.decide("push", Load(0.69)).verdict == "execute"


def test_kinds_are_held_back_independently() -> None:
    admission = Admission()
    assert admission.decide("push", Load(0.75)).verdict == "enqueue"
    assert admission.decide("ack", Load(0.75)).verdict == "execute"
    assert admission.decide("ack", Load(0.65)).verdict == "execute"
    assert admission.decide("push", Load(0.65)).verdict == "enqueue"


def test_decisions_are_counted_by_kind() -> None:
    admission = Admission()
    for use, depth in ((0.1, 0), (0.9, 0), (0.9, 10_000)):
        admission.count("push", admission.decide("push", Load(use, depth)).verdict)
    assert admission.decisions["push"] == {"execute": 1, "enqueue": 1, "refuse": 1}
    assert set(admission.decisions) == set(LIMITS)


def test_one_slow_flush_is_not_a_load() -> None:
    gauge = Gauge()
    gauge.feed(0.0, busy=0.0, waited=0.0)
    assert gauge.feed(0.3, busy=1.0, waited=0.3) < 0.70 * 0.8


def test_a_lasting_wait_fills_the_gauge_and_its_end_empties_it() -> None:
    gauge = Gauge()
    for step in range(60):
        gauge.feed(step * 0.1, busy=1.0, waited=0.4)
    assert gauge.use > 0.95
    for step in range(60, 120):
        gauge.feed(step * 0.1, busy=0.0, waited=0.0)
    assert gauge.use < 0.05


def test_a_busy_store_without_waiting_is_half_used() -> None:
    gauge = Gauge()
    for step in range(100):
        gauge.feed(step * 0.1, busy=1.0, waited=0.0)
    assert gauge.use == pytest.approx(0.5, abs=0.01)


def test_noise_about_the_threshold_changes_the_verdict_at_most_once() -> None:
    """Waits that jump between none and far too long, about a mean that is past the threshold."""
    rng = random.Random(7)
    gauge, admission = Gauge(), Admission()
    verdicts: list[str] = []
    for step in range(2_000):
        use = gauge.feed(step * 0.01, busy=1.0, waited=rng.choice([0.0, 0.1, 0.2, 0.5]))
        verdicts.append(admission.decide("push", Load(use)).verdict)
    changes = sum(before != after for before, after in itertools.pairwise(verdicts))
    assert changes == 1
    assert verdicts[-1] == "enqueue"


def test_an_execution_has_a_reason_too() -> None:
    assert decide("push", Load(0.0)) == Decision("execute", "the store has room")


async def test_the_engine_feeds_the_gauge_from_its_batchers() -> None:
    """A store that holds up its flushes shows as use; once it goes on, the use falls."""
    broker = Broker(await SqliteStore.open(":memory:"), limits=LIMITS)
    engine = broker.engine
    try:
        assert engine.load() == Load(0.0, 0, 0.0)
        await broker.push("q", 0)
        held = asyncio.Event()
        push = broker.store.messages.push

        async def slow(slices: Sequence[Slice]) -> list[PushResult]:
            await held.wait()
            return await push(slices)

        broker.store.messages.push = slow  # type: ignore[method-assign]
        first = asyncio.create_task(broker.push("q", 1))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(broker.push("q", 2))
        uses = []
        for _ in range(10):
            await asyncio.sleep(0.05)
            uses.append(engine.load().use)
        engine.processor.kept(7)
        load = engine.load()
        held.set()
        await asyncio.gather(first, second)
        await asyncio.sleep(0.1)
        assert uses == sorted(uses)
        assert uses[-1] > 0.2
        assert load.depth == 7
        assert engine.load().use < uses[-1]
    finally:
        await broker.close()


def test_whoever_would_wait_long_on_a_busy_store_is_queued_and_then_refused() -> None:
    busy = Load(0.5, execute_seconds=0.3)
    assert decide("push", busy).verdict == "enqueue"
    assert "wait for it" in decide("push", busy).reason
    refused = decide("push", busy._replace(enqueue_seconds=0.3))
    assert (refused.verdict, refused.retry_after) == ("refuse", 1.0)
    assert decide("push", Load(0.9, enqueue_seconds=0.3)).verdict == "refuse"
    assert decide("push", busy._replace(execute_seconds=0.01)).verdict == "execute"


def test_a_used_up_store_executes_what_it_can_answer_soon_and_stays_held_back() -> None:
    admission = Admission()
    used_up = Load(0.9, execute_seconds=0.2)
    assert admission.decide("push", used_up).verdict == "enqueue"
    assert admission.decide("push", used_up._replace(execute_seconds=0.05)).verdict == "execute"
    assert admission.holds_back("push")
    assert admission.decide("push", used_up._replace(execute_seconds=0.1)).verdict == "enqueue"
    assert admission.decide("push", Load(0.2, execute_seconds=0.05)).verdict == "execute"
    assert not admission.holds_back("push")
    assert decide("pop", Load(0.96, execute_seconds=0.0)).verdict == "refuse"


def test_a_load_that_holds_some_back_leaves_time_for_the_answer() -> None:
    late = Load(0.5, execute_seconds=0.1)
    assert decide("push", late).verdict == "execute"
    assert decide("push", late._replace(held_seconds=0.1)).verdict == "enqueue"


def test_a_burst_is_queued_and_a_load_that_lasts_is_refused() -> None:
    admission = Admission()
    used_up = Load(0.9, execute_seconds=0.2)
    verdicts = [admission.decide("push", used_up, now=step / 10).verdict for step in range(40)]
    assert verdicts == ["enqueue"] * 3 + ["refuse"] * 37
    assert "for 4 s now" in admission.decide("push", used_up, now=4.0).reason
    assert admission.decide("push", used_up, now=5.1).verdict == "enqueue", "a lull ended it"
    acks = [admission.decide("ack", used_up, now=step / 10).verdict for step in range(40)]
    assert set(acks) == {"enqueue"}


def test_callers_in_the_same_process_are_never_held_back() -> None:
    crowded = Load(1.0, 10**9, execute_seconds=1e9, enqueue_seconds=1e9, held_seconds=300.0)
    for kind in LIMITS:
        assert decide(kind, crowded, limits=PATIENT).verdict == "execute"
    assert inspect.signature(Broker.open).parameters["limits"].default is PATIENT


def test_a_burst_is_not_a_load() -> None:
    burst = Load(0.2, execute_seconds=5.0, enqueue_seconds=5.0)
    assert decide("push", burst).verdict == "execute"


def test_pops_do_not_wait_for_pushes() -> None:
    assert decide("pop", Load(0.9, execute_seconds=5.0, enqueue_seconds=5.0)).verdict == "execute"


def test_an_ack_is_not_refused_because_it_would_wait() -> None:
    busy = Load(0.6, execute_seconds=0.3, enqueue_seconds=0.3)
    assert decide("ack", busy).verdict == "enqueue"
    assert decide("push", busy).verdict == "refuse"
