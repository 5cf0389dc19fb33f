"""What a batcher does with outcomes that nobody waits for."""

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
