"""Pops take what fits into the memory budget for clients, one after another if they may be large."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from fairlane.broker.pop import PopByteLimiter
from fairlane.errors import Overloaded
from fairlane.model.ids import PartitionId
from fairlane.model.limits import MESSAGE_BYTES_MAX, POP_BYTES_MAX
from fairlane.model.segment import Segment
from fairlane.runtime.memory import ByteBudget
from fairlane.store.contract.values import ClaimedLane, PopClaim

QUEUE = 1


def claims(count: int = 1, batch: int = 100) -> list[PopClaim]:
    return [PopClaim(uuid4(), batch) for _ in range(count)]


def lane(message_bytes: int) -> ClaimedLane:
    segment = Segment(0, 0, [message_bytes], b"x" * message_bytes, 0)
    return ClaimedLane(
        partition=PartitionId(0, 1), name="", first=0, upto=1, attempts=0, lease_ends_at=0, segments=[segment]
    )


async def test_without_pressure_a_pop_may_take_as_much_as_ever() -> None:
    limiter = PopByteLimiter(ByteBudget(10 * POP_BYTES_MAX))
    assert await limiter.claim(QUEUE, claims()) == (POP_BYTES_MAX, POP_BYTES_MAX)


async def test_a_pop_takes_what_fits() -> None:
    budget = ByteBudget(8 * MESSAGE_BYTES_MAX)
    budget.used = MESSAGE_BYTES_MAX
    limiter = PopByteLimiter(budget)
    free = 5 * MESSAGE_BYTES_MAX  # a quarter is reserved for bodies
    assert await limiter.claim(QUEUE, claims(2)) == (free, free // 2)


async def test_without_room_a_pop_is_refused() -> None:
    budget = ByteBudget(8 * MESSAGE_BYTES_MAX)
    budget.used = 6 * MESSAGE_BYTES_MAX
    with pytest.raises(Overloaded):
        await PopByteLimiter(budget).claim(QUEUE, claims())


async def test_a_pop_waits_for_those_under_way() -> None:
    limiter = PopByteLimiter(ByteBudget(8 * MESSAGE_BYTES_MAX))
    first, _ = await limiter.claim(QUEUE, claims())
    waiting = [asyncio.create_task(limiter.claim(QUEUE, claims())) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    limiter.release(first)
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    [one] = done
    limiter.release(one.result()[0])
    await asyncio.wait(waiting)
    assert [task.result()[0] for task in waiting] == [first, first]


async def test_pops_of_a_queue_of_small_messages_need_no_turn() -> None:
    limiter = PopByteLimiter(ByteBudget(8 * MESSAGE_BYTES_MAX))
    limiter.learn(QUEUE, [[lane(1000)], []])
    await limiter.claim(QUEUE + 1, claims())  # the size of an unknown queue counts as the whole budget
    assert await limiter.claim(QUEUE, claims()) == (0, MESSAGE_BYTES_MAX)


async def test_a_queue_whose_messages_became_large_is_known_at_once() -> None:
    limiter = PopByteLimiter(ByteBudget(80 * MESSAGE_BYTES_MAX))
    limiter.learn(QUEUE, [[lane(1000)]])
    limiter.learn(QUEUE, [[lane(MESSAGE_BYTES_MAX)]])
    assert await limiter.claim(QUEUE, claims()) == (POP_BYTES_MAX, POP_BYTES_MAX)
