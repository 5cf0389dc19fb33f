"""A tenant beside another one that floods."""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import Any

from fairlane import Broker, PushItem


async def test_a_tenant_beside_a_flood_waits_for_few_items_and_three_times_the_work(store_url: str) -> None:
    """Items and CPU seconds are counted and not the time, because the machine may be busy with other tests."""
    begun = 0
    async with Broker.open(store_url) as broker:
        for name in ("flooding", "quiet"):
            await broker.tenants.create(name)
        flooding, quiet = broker.of("flooding"), broker.of("quiet")
        pushes = broker._engine.admission.pushes
        store = pushes._flush

        async def counted(batch: list[Any]) -> Any:
            nonlocal begun
            begun += sum(len(request.items) for request in batch)
            return await store(batch)

        pushes._flush = counted

        async def waited() -> tuple[float, float]:
            """The medians of the items flushed and of the CPU seconds spent while a push of the quiet tenant waits."""
            items, seconds = [], []
            for number in range(60):
                before, began = begun, time.process_time()
                await quiet.push("orders", number)
                items.append(begun - before)
                seconds.append(time.process_time() - began)
                await asyncio.sleep(0.002)  # so that it finds the flood at any point
            return median(items), median(seconds)

        async def flood(lane: int) -> None:
            items = [PushItem(queue="mail", partition=str(lane), payload=b"1") for _ in range(50)]
            while not done:
                await flooding.push_many(items)

        done = False
        await waited()
        alone, alone_seconds = await waited()
        tasks = [asyncio.create_task(flood(lane)) for lane in range(40)]
        await waited()
        beside, beside_seconds = await waited()
        done = True
        await asyncio.gather(*tasks)
    assert alone == 1
    assert beside <= 100
    assert beside_seconds <= 3 * alone_seconds, f"{beside_seconds / alone_seconds:.1f} times the CPU of a quiet broker"
