"""Fair tenants: a tenant that floods does not make another one wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairlane import Broker
from fairlane.errors import OverQuota
from fairlane.model.message import PushItem
from fairlane.model.tenant import Quotas
from fairlane.runtime.batcher import Batcher, BatchPolicy
from fairlane.runtime.fair_queue import FairQueue

Request = tuple[str, int, int]
"""Owner, number and items."""


def turns(waiting: Sequence[Request], count: int) -> list[Request]:
    line: FairQueue[Request] = FairQueue()
    for one in waiting:
        line.put(one[0], one, one[2])
    return [line.pop() for _ in range(count)]


def test_owners_take_turns_by_their_items() -> None:
    flood = [("a", number, 50) for number in range(4)]
    single = [("b", number, 1) for number in range(60)]
    found = turns([*flood, *single], 64)
    assert found[0] == ("b", 0, 1), "the smaller request of owners that were served equally"
    assert found[1] == ("a", 0, 50)
    assert found[2:51] == single[1:50], "as many items as the first had"
    assert {found[51][0], found[52][0]} == {"a", "b"}
    assert sorted(found) == sorted([*flood, *single])


def test_each_owner_keeps_its_order() -> None:
    waiting = [("abc"[number * 7 % 3], number, number % 5 + 1) for number in range(50)]
    for count in (0, 1, 10, 50):
        found = turns(waiting, count)
        for owner in "abc":
            mine = [one for one in found if one[0] == owner]
            assert mine == [one for one in waiting if one[0] == owner][: len(mine)]


def test_an_owner_that_comes_late_is_next_and_one_that_went_gains_nothing() -> None:
    line: FairQueue[Request] = FairQueue()
    for number in range(10):
        line.put("a", ("a", number, 50), 50)
        line.put("b", ("b", number, 50), 50)
    served = [line.pop() for _ in range(8)]
    line.put("c", ("c", 0, 1), 1)
    served += [line.pop() for _ in range(3)]
    assert served[8:] == [("c", 0, 1), ("a", 4, 50), ("b", 4, 50)]
    line.put("c", ("c", 1, 500), 500)
    assert line.pop() == ("c", 1, 500)
    line.put("c", ("c", 2, 1), 1)
    assert [line.pop()[0] for _ in range(10)] == [*"ababababab"], "it waits until the others had as many items"
    assert line.pop() == ("c", 2, 1)
    assert not line


async def test_a_request_behind_a_flood_is_in_the_next_flush_which_is_small() -> None:
    flushes: list[list[Request]] = []
    gate = asyncio.Event()

    async def flush(batch: list[Request]) -> list[None]:
        flushes.append(batch)
        await gate.wait()
        return [None] * len(batch)

    batcher: Batcher[Request, None] = Batcher(flush, BatchPolicy(), owner=lambda one: one[0])
    batcher._rate.resume(0.0)
    batcher._rate.record(1000, 1.0)
    batcher._rate.at = asyncio.get_running_loop().time() + 1e9  # the estimate is fresh
    flood = [batcher.put(("a", number, 50), 50) for number in range(200)]
    await asyncio.sleep(0)
    assert len(flushes) == 1
    single = batcher.put(("b", 0, 1), 1)
    assert batcher.wait_seconds_of("b") < batcher.wait_seconds_of("a") == batcher.wait_seconds()
    gate.set()
    await single
    assert ("b", 0, 1) in flushes[1]
    assert sum(items for _, _, items in flushes[1]) <= 51
    assert batcher.wait_seconds_of("b") < batcher.wait_seconds_of("a") == batcher.wait_seconds(), "of those in turns"
    await asyncio.gather(*flood)
    assert [number for flushed in flushes for owner, number, _ in flushed if owner == "a"] == list(range(200))
    assert batcher.idle


async def test_flushes_stay_small_while_two_owners_alternate_and_grow_when_one_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The requests of both need not wait at the same time: each finds a small flush already."""
    now, sizes = 0.0, list[int]()
    monkeypatch.setattr("fairlane.runtime.batcher.perf_counter", lambda: now)

    async def flush(batch: list[Request]) -> list[None]:
        sizes.append(sum(items for _, _, items in batch))
        await asyncio.sleep(0)
        return [None] * len(batch)

    batcher: Batcher[Request, None] = Batcher(flush, BatchPolicy(), owner=lambda one: one[0])
    await batcher.put(("a", 0, 1), 1)
    await batcher.put(("b", 0, 1), 1)
    await asyncio.gather(*[batcher.put(("a", number, 50), 50) for number in range(20)])
    assert max(sizes) == 50
    flood = [batcher.put(("a", number, 50), 50) for number in range(20)]
    now = 60.0
    await asyncio.gather(*flood)
    await asyncio.gather(*[batcher.put(("a", number, 50), 50) for number in range(20)])
    assert sizes[-1] == 1000


async def test_a_small_request_is_answered_before_the_next_flush_begins() -> None:
    events: list[str] = []

    async def flush(batch: list[Request]) -> list[None]:
        events.append(f"flush {len(batch)}")
        return [None] * len(batch)

    batcher: Batcher[Request, None] = Batcher(flush, BatchPolicy(), owner=lambda one: one[0])

    async def put(owner: str, items: int) -> None:
        await batcher.put((owner, 0, items), items)
        events.append(owner)

    await asyncio.gather(put("a", 40), put("a", 40), put("b", 1), put("a", 90))
    assert events == ["flush 2", "b", "a", "flush 1", "a", "flush 1", "a"]


async def test_a_single_owner_is_flushed_as_if_there_were_no_turns() -> None:
    sizes: list[int] = []

    async def flush(batch: list[Request]) -> list[None]:
        sizes.append(sum(items for _, _, items in batch))
        await asyncio.sleep(0)
        return [None] * len(batch)

    batcher: Batcher[Request, None] = Batcher(flush, BatchPolicy(), owner=lambda one: one[0])
    await asyncio.gather(*[batcher.put(("a", number, 50), 50) for number in range(100)])
    assert max(sizes) >= 4000


async def test_owners_that_take_turns_have_one_flush_at_a_time_and_the_next_begins_after_it() -> None:
    running, together = 0, list[int]()

    async def flush(batch: list[Request]) -> list[None]:
        nonlocal running
        running += 1
        together.append(running)
        await asyncio.sleep(0)
        running -= 1
        return [None] * len(batch)

    batcher: Batcher[Request, None] = Batcher(flush, BatchPolicy(flushes=3, requests_max=2), owner=lambda one: one[0])
    await asyncio.gather(*[batcher.put(("a", number, 1), 1) for number in range(20)])
    assert max(together) == 3
    await asyncio.gather(*[batcher.put(("ab"[number % 2], number, 1), 1) for number in range(20)])
    together.clear()
    await asyncio.gather(*[batcher.put(("ab"[number % 2], number, 1), 1) for number in range(20)])
    assert max(together) == 1
    assert batcher.idle


async def test_quotas_limit_messages_and_bytes_and_not_only_requests(tmp_path: Path) -> None:
    async with Broker.open(tmp_path / "queue.db") as broker:
        await broker.tenants.create("few", Quotas(messages_per_second=10))
        await broker.tenants.create("small", Quotas(bytes_per_second=1000))
        for name, items in (("few", [b"1"] * 500), ("small", [b'"%s"' % (b"x" * 5000)])):
            tenant = broker.of(name)
            some = [PushItem(queue="mail", payload=payload) for payload in items]
            await tenant.push_many(some)  # larger than what is left, which delays the next one
            with pytest.raises(OverQuota) as refused:
                await tenant.push_many(some)
            assert 1 < (refused.value.retry_after or 0) <= 60
            with pytest.raises(OverQuota):
                async with tenant.transaction() as transaction:
                    transaction.push("mail", 1)
        await broker.push("mail", 1)
        await broker.tenants.limit("few", Quotas())
        await broker.of("few").push("mail", 1)
