"""CountCache: counts are fresh while counting is cheap, and otherwise shared and refreshed in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fairlane.broker import count_cache
from fairlane.broker.count_cache import CountCache
from fairlane.errors import StoreUnavailable
from fairlane.telemetry import Telemetry
from tests.until import until

WIDE, SMALL, GONE = 1, 2, 3


class Store:
    """A store that records who asked for counts. `gate` blocks counts of the wide queue."""

    def __init__(self) -> None:
        self.holds = {WIDE: 100_000, SMALL: 1}
        self.asked: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False

    async def count(self, ids: Sequence[int]) -> dict[int, int]:
        self.asked.append(sorted(ids))
        found = {id: self.holds[id] for id in ids if id in self.holds}
        if WIDE in ids:
            await self.gate.wait()
        if self.fails:
            raise StoreUnavailable("it is away")
        return found


class Time:
    """A clock on which a count of the wide queue takes a second, or longer on a busy machine."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.passed = 100.0
        self.busy = False

    def monotonic(self) -> float:
        self.passed += 1e-6
        return self.passed + sum(1.0 for ids in self._store.asked if WIDE in ids or self.busy)


@pytest.fixture
async def store() -> Store:
    return Store()


@pytest.fixture
async def clock(store: Store, monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time(store)
    monkeypatch.setattr(count_cache, "time", found)
    return found


@pytest.fixture
async def counted(store: Store, clock: Time) -> CountCache[int]:
    return CountCache(Telemetry(), store.count, lambda found: found)


async def test_what_is_cheap_to_count_is_counted_for_everybody_who_asks(store: Store, counted: CountCache[int]) -> None:
    assert await counted.of([SMALL, GONE]) == {SMALL: 1}
    store.holds[SMALL] = 2
    assert await counted.of([SMALL]) == {SMALL: 2}
    assert counted.age_seconds() == 0


async def test_little_is_counted_for_everybody_who_asks_on_a_busy_machine_too(
    store: Store, clock: Time, counted: CountCache[int]
) -> None:
    clock.busy = True
    for held in (5, 2, 0):
        store.holds[SMALL] = held
        assert await counted.of([SMALL, GONE]) == {SMALL: held}


async def test_those_who_ask_for_what_is_dear_share_one_count(store: Store, counted: CountCache[int]) -> None:
    store.gate.clear()
    asking = [asyncio.create_task(counted.of([WIDE, SMALL])) for _ in range(5)]
    await until(lambda: bool(store.asked))
    store.gate.set()
    assert await asyncio.gather(*asking) == [{WIDE: 100_000, SMALL: 1}] * 5
    assert store.asked == [[WIDE, SMALL]]


async def test_a_dear_count_serves_and_is_made_anew_beside_those_who_ask(
    store: Store, clock: Time, counted: CountCache[int]
) -> None:
    await counted.of([WIDE, SMALL])
    store.holds[WIDE] = 7
    clock.passed += 5
    assert (await counted.of([WIDE]))[WIDE] == 100_000
    assert counted.age_seconds() == 6
    clock.passed += 18  # it is served for twenty times as long as it took, and slightly longer while it is refreshed
    assert (await counted.of([WIDE]))[WIDE] == 100_000

    async def anew() -> bool:
        return (await counted.of([WIDE]))[WIDE] == 7

    await until(anew)


async def test_who_asks_long_after_the_last_count_waits_for_a_new_one(
    store: Store, clock: Time, counted: CountCache[int]
) -> None:
    await counted.of([WIDE])
    store.holds[WIDE] = 7
    clock.passed += 100
    assert await counted.of([WIDE]) == {WIDE: 7}


async def test_a_small_queue_that_something_happened_to_is_counted_at_once(
    store: Store, clock: Time, counted: CountCache[int]
) -> None:
    await counted.of([WIDE, SMALL])
    store.holds |= {WIDE: 7, SMALL: 2}
    counted._telemetry.queue(SMALL).pushed += 1
    counted._telemetry.queue(WIDE).pushed += 1
    clock.passed += 1
    assert await counted.of([WIDE, SMALL]) == {WIDE: 100_000, SMALL: 2}
    assert store.asked[1:] == [[SMALL]]


async def test_what_was_changed_otherwise_is_counted_anew(store: Store, clock: Time, counted: CountCache[int]) -> None:
    await counted.of([WIDE])
    store.holds[WIDE] = 0
    counted.forget(WIDE)
    assert await counted.of([WIDE]) == {WIDE: 0}


async def test_a_store_that_is_away_is_said_to_those_who_must_wait(store: Store, counted: CountCache[int]) -> None:
    store.fails = True
    with pytest.raises(StoreUnavailable):
        await counted.of([WIDE])
    store.fails = False
    assert await counted.of([WIDE]) == {WIDE: 100_000}


async def test_a_count_that_nobody_waits_for_ends_with_the_broker(
    store: Store, clock: Time, counted: CountCache[int]
) -> None:
    await counted.of([WIDE])
    clock.passed += 25
    store.gate.clear()
    await counted.of([WIDE])
    await until(lambda: len(store.asked) == 2)
    await counted.stop()
