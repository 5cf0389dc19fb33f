"""How long the store is waited for: one slow flush has the whole patience, a silent store a quarter of it."""

from __future__ import annotations

import asyncio
from time import monotonic

from fairlane.engine.patience import Patience

PATIENCE = 1.2


async def answers(patience: Patience, *, times: int = 40) -> None:
    """A store that was seen to be fast."""
    for _ in range(times):
        assert await patience.waits_for(asyncio.sleep(0), hasty=lambda: True)


async def waited(patience: Patience, seconds: float, *, hasty: bool = True) -> tuple[bool, float]:
    """Whether work of so many seconds was waited for, and how long."""
    began = monotonic()
    return await patience.waits_for(asyncio.sleep(seconds), hasty=lambda: hasty), monotonic() - began


async def left(patience: Patience) -> None:
    while patience.left_behind:
        await asyncio.wait(set(patience.left_behind))


async def test_a_store_that_answers_nobody_is_given_up_after_a_quarter_of_the_patience() -> None:
    patience = Patience(PATIENCE)
    await answers(patience)
    done, seconds = await waited(patience, 0.8)
    assert not done
    assert PATIENCE / 4 <= seconds < 0.8
    assert len(patience.left_behind) == 1, "what nobody waits for goes on"
    await left(patience)


async def test_work_that_could_not_be_kept_has_the_whole_patience() -> None:
    patience = Patience(PATIENCE)
    await answers(patience)
    assert (await waited(patience, 0.6, hasty=False))[0]


async def test_a_store_that_was_not_seen_to_be_fast_has_the_whole_patience() -> None:
    assert (await waited(Patience(PATIENCE), 0.6))[0]


async def test_one_slow_flush_is_waited_for_while_others_are_answered() -> None:
    patience = Patience(PATIENCE)
    await answers(patience)
    slow = asyncio.create_task(waited(patience, 0.7))
    while not slow.done():
        await patience.waits_for(asyncio.sleep(0.02), hasty=lambda: True)
    assert (await slow)[0]


async def test_a_slow_store_is_not_a_silent_one() -> None:
    patience = Patience(PATIENCE)
    await answers(patience)
    assert (await waited(patience, 0.2))[0]
    assert patience.silence_seconds() > 0.7, "it took long just now, so that it may again"
