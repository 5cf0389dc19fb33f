"""An alert storm: a thousand alerts at once while their handler is broken."""

from __future__ import annotations

import asyncio
from collections import Counter

from fairlane import Client, Message
from fairlane.client import Fail
from tests.http.wire import Wire

ALERTS = 1000
SERVICES = 20


async def test_a_flood_is_kept_while_its_handler_fails_and_each_alert_is_processed_once_when_it_is_mended(
    wire: Wire,
) -> None:
    queue = wire.name("alerts")
    processed: Counter[int] = Counter()
    broken = True

    async def handle(message: Message[int]) -> Fail | None:
        if broken and message.data % 4 == 0:
            return Fail("the pager does not answer")
        processed[message.data] += 1
        return None

    async def work() -> int:
        return await client.consume(queue, handle, type=int, batch=50, concurrency=4, idle_seconds=0.3)

    async with Client(wire.base) as client:
        await client.queues.configure(queue, retry_limit=1)
        pushes = (client.push(queue, number, partition=f"service {number % SERVICES}") for number in range(ALERTS))
        outcomes = await asyncio.gather(*pushes)
        assert {outcome.status for outcome in outcomes} == {"queued"}
        await work()
        stuck = await client.dead_letters.page(queue, limit=ALERTS)
        assert len(stuck) == ALERTS // 4
        assert {(letter.error, letter.attempts) for letter in stuck} == {("the pager does not answer", 2)}
        assert processed == Counter(number for number in range(ALERTS) if number % 4)
        broken = False
        assert len(await client.dead_letters.replay(queue)) == len(stuck)
        assert await client.dead_letters.replay(queue) == [], "pressing twice replays once"
        await work()
        assert processed == Counter(range(ALERTS))
