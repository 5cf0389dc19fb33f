"""Fair tenants: a tenant that floods does not make another one wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from fairlane import Broker
from fairlane.errors import OverQuota
from fairlane.model.message import PushItem
from fairlane.model.tenant import Quotas
from fairlane.runtime.batcher import Batcher, BatchPolicy
from fairlane.runtime.turns import in_turns

Request = tuple[str, int, int]
"""Owner, number and items."""


def turns(waiting: Sequence[Request], count: int) -> list[Request]:
    return in_turns(waiting, lambda one: one[0], lambda one: one[2], count=count)


def test_owners_take_turns_by_their_items() -> None:
    flood = [("a", number, 50) for number in range(4)]
    single = [("b", number, 1) for number in range(60)]
    found = turns([*flood, *single], 60)
    assert found[0] == ("a", 0, 50)
    assert found[1:51] == single[:50], "as many items as the first had"
    assert found[51] == ("a", 1, 50)
    assert sorted(found) == sorted([*flood, *single])


def test_each_owner_keeps_its_order() -> None:
    waiting = [("abc"[number * 7 % 3], number, number % 5 + 1) for number in range(50)]
    for count in (0, 1, 10, 50, 99):
        found = turns(waiting, count)
        for owner in "abc":
            assert [one for one in found if one[0] == owner] == [one for one in waiting if one[0] == owner]


def test_the_rest_stays_in_its_order() -> None:
    waiting = [("a", 0, 1), ("a", 1, 1), ("b", 0, 1), ("a", 2, 1), ("c", 0, 1), ("b", 1, 1)]
    assert turns(waiting, 3) == [("a", 0, 1), ("b", 0, 1), ("c", 0, 1), ("a", 1, 1), ("a", 2, 1), ("b", 1, 1)]


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
    assert sum(items for _, _, items in flushes[1]) <= 150
    await asyncio.gather(*flood)
    assert [number for flushed in flushes for owner, number, _ in flushed if owner == "a"] == list(range(200))


async def test_a_single_owner_is_flushed_as_if_there_were_no_turns() -> None:
    sizes: list[int] = []

    async def flush(batch: list[Request]) -> list[None]:
        sizes.append(sum(items for _, _, items in batch))
        await asyncio.sleep(0)
        return [None] * len(batch)

    batcher: Batcher[Request, None] = Batcher(flush, BatchPolicy(), owner=lambda one: one[0])
    await asyncio.gather(*[batcher.put(("a", number, 50), 50) for number in range(100)])
    assert max(sizes) >= 4000


async def test_a_tenant_beside_a_flood_waits_for_few_batches(tmp_path: Path) -> None:
    """Batches are counted and not seconds, because the machine may be busy with other tests."""
    begun = 0
    async with Broker.open(tmp_path / "queue.db") as broker:
        for name in ("flooding", "quiet"):
            await broker.tenants.create(name)
        flooding, quiet = broker.of("flooding"), broker.of("quiet")
        pushes = broker._engine.admission.pushes
        store = pushes._flush

        async def counted(batch: list[Any]) -> Any:
            nonlocal begun
            begun += 1
            return await store(batch)

        pushes._flush = counted

        async def waited() -> float:
            """The median of the batches that begin while a push of the quiet tenant waits."""
            found = []
            for number in range(30):
                before = begun
                await quiet.push("orders", number)
                found.append(begun - before)
            return median(found)

        async def flood(lane: int) -> None:
            items = [PushItem(queue="mail", partition=str(lane), payload=b"1") for _ in range(50)]
            while not done:
                await flooding.push_many(items)

        done = False
        alone = await waited()
        tasks = [asyncio.create_task(flood(lane)) for lane in range(40)]
        await asyncio.sleep(0)
        beside = await waited()
        done = True
        await asyncio.gather(*tasks)
    assert alone == 1
    assert beside <= 3 * alone


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
