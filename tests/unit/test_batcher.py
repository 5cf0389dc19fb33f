"""What a batcher does with outcomes that nobody waits for, and what it says of its load."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.engine.batch_policy import BatchPolicy
from fairlane.engine.batcher import Batcher


async def test_a_caller_cancelled_between_its_outcome_and_its_turn_is_counted_as_gone() -> None:
    unwanted: list[tuple[str, str]] = []

    async def flush(ops: list[str]) -> list[str]:
        return [op.upper() for op in ops]

    batcher: Batcher[str, str] = Batcher(
        flush, BatchPolicy(), unwanted=lambda op, outcome: unwanted.append((op, outcome))
    )
    caller = asyncio.create_task(batcher.submit("a"))
    original = batcher._answer

    def answer(op: str, future: asyncio.Future[str], outcome: str | Exception) -> None:
        original(op, future, outcome)
        caller.cancel()  # it has its outcome, and learns of it only in the loop's next turn

    batcher._answer = answer  # type: ignore[method-assign]
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


async def test_a_handful_of_callers_is_no_load_however_slow_the_store_is() -> None:
    async def flush(ops: list[int]) -> list[int]:
        await asyncio.sleep(0.01 + 0.01 * len(ops))
        return ops

    batcher: Batcher[int, int] = Batcher(flush, BatchPolicy())
    for count in (1, 8, 2, 8):  # so that it knows what an item costs
        await asyncio.gather(*map(batcher.submit, range(count)))
    few = [asyncio.create_task(batcher.submit(number)) for number in range(8)]
    await asyncio.sleep(0)
    assert batcher.backlog_seconds() == 0
    many = [asyncio.create_task(batcher.submit(number)) for number in range(64)]
    await asyncio.sleep(0)
    assert (batcher.backlog_seconds() or 0) > 0.1
    await asyncio.gather(*few, *many)
