"""The batcher: outcomes without a waiting caller, and its reported load."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.runtime.batcher import Batcher, BatchPolicy, Weight


async def test_a_caller_cancelled_between_its_outcome_and_its_turn_is_counted_as_gone() -> None:
    unwanted: list[tuple[str, str]] = []

    async def flush(ops: list[str]) -> list[str]:
        # Its outcome is already set, and it would get it in the same turn of the loop.
        asyncio.get_running_loop().call_soon(caller.cancel)
        return [op.upper() for op in ops]

    batcher: Batcher[str, str] = Batcher(
        flush, BatchPolicy(), unwanted=lambda op, outcome: unwanted.append((op, outcome))
    )
    caller = asyncio.create_task(batcher.submit("a"))
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert unwanted == [("a", "A")]


async def test_a_caller_that_got_its_outcome_is_not_counted_as_gone() -> None:
    unwanted: list[str] = []

    async def flush(ops: list[str]) -> list[str]:
        return ops

    batcher: Batcher[str, str] = Batcher(flush, BatchPolicy(), unwanted=lambda op, _: unwanted.append(op))
    assert await batcher.submit("a") == "a"
    gone = asyncio.create_task(batcher.submit("b"))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await batcher.stop()
    assert "a" not in unwanted


async def test_only_a_flush_that_left_others_behind_says_how_long_they_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A burst arrives at a batcher that flushed single items, each as slowly as a larger flush. That is not load."""
    now = 0.0
    monkeypatch.setattr("fairlane.runtime.batcher.perf_counter", lambda: now)
    turns: asyncio.Queue[None] = asyncio.Queue()
    sizes: list[int] = []

    async def flush(ops: list[int]) -> list[int]:
        sizes.append(len(ops))
        await turns.get()
        nonlocal now
        now += 0.1
        return ops

    async def turn() -> None:
        turns.put_nowait(None)
        began = len(sizes)
        while turns.qsize() or (len(sizes) == began and batcher.pending > 1):  # noqa: ASYNC110
            await asyncio.sleep(0)

    batcher: Batcher[int, int] = Batcher(flush, BatchPolicy(requests_max=10))
    for number in range(5):
        alone = asyncio.create_task(batcher.submit(number))
        await turn()
        await alone
    burst = [asyncio.create_task(batcher.submit(number)) for number in range(25)]
    await asyncio.sleep(0)
    assert batcher.items == 25
    assert batcher.wait_seconds() == 0
    await turn()
    assert batcher.items == 15
    assert batcher.wait_seconds() == pytest.approx(0.15), "of ten in a tenth of a second"
    await turn()
    assert batcher.wait_seconds() == 0, "all that is left is under way"
    await turn()
    await asyncio.gather(*burst)
    assert sizes == [1, 1, 1, 1, 1, 10, 10, 5]


async def test_callers_of_a_flush_that_is_cancelled_do_not_wait_for_ever() -> None:
    async def flush(ops: list[str]) -> list[str]:
        raise asyncio.CancelledError

    batcher: Batcher[str, str] = Batcher(flush, BatchPolicy())
    callers = [asyncio.create_task(batcher.submit(op)) for op in ("a", "b")]
    async with asyncio.timeout(10):
        await asyncio.wait(callers)
    assert all(caller.cancelled() for caller in callers)


@pytest.mark.parametrize(
    ("rate", "count"),
    [(0.0, 5_000), (1e6, 5_000), (10_000.0, 2_500), (10.0, 500)],
    ids=["unknown", "fast", "slow", "slower"],
)
def test_a_slow_store_gets_less_at_once(rate: float, count: int) -> None:
    policy = BatchPolicy(flushes=2, requests_max=10_000)
    waiting = [Weight(1)] * 10_000
    assert policy.take(waiting, items=10_000, running=0, rate=rate) == count
