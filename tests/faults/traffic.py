"""Producers and consumers of one client with default settings, and what was accepted and delivered."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from fairlane import Client, Message
from tests.faults.producers import QUEUE

LANES = [f"p{number}" for number in range(6)]
SECONDS_MAX = 120


class Traffic:
    """Producers that await each push, and consumers, all through one client."""

    def __init__(self, client: Client, *, consumed: Sequence[str] = (QUEUE, QUEUE)) -> None:
        self._client = client
        self._stopping = False
        self.accepted: dict[str, list[int]] = defaultdict(list)
        self.delivered: dict[str, list[int]] = defaultdict(list)
        self.journalled: Counter[str] = Counter()
        self.stored_last: set[str] = set()
        """Lanes whose latest push was stored immediately."""
        self._changed = asyncio.Condition()
        self._producers = [asyncio.create_task(self._produce(lane)) for lane in LANES]
        self._consumers = [asyncio.create_task(self._consume(queue)) for queue in consumed]

    async def _produce(self, lane: str) -> None:
        number = 0
        while not self._stopping:
            outcome = await self._client.push(QUEUE, number, partition=lane)
            self.accepted[lane].append(number)
            self.journalled[lane] += outcome.durability == "journal"
            (self.stored_last.add if outcome.status == "queued" else self.stored_last.discard)(lane)
            number += 1
            await self._tell()
            await asyncio.sleep(0.01)

    async def _consume(self, queue: str) -> None:
        await self._client.consume(queue, self._deliver, batch=10, partitions=3, lease_seconds=10)

    async def _deliver(self, message: Message[int]) -> None:
        self.delivered[message.partition].append(message.data)
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS_MAX), self._changed:
            await self._changed.wait_for(lambda: wanted() or self._failed())
        assert not self._failed(), "a producer got an error"

    def _failed(self) -> bool:
        return any(task.done() and task.exception() for task in self._producers)

    async def progress(self) -> None:
        """Wait until messages of every lane are pushed and delivered that were not pushed yet."""
        before = {lane: len(self.accepted[lane]) for lane in LANES}
        await self.until(lambda: all(len(set(self.delivered[lane])) >= before[lane] + 5 for lane in LANES))

    async def finish(self) -> None:
        """Stop the producers, and check that all their messages are delivered in order."""
        self._stopping = True
        await asyncio.gather(*self._producers)
        await self.until(lambda: all(set(self.accepted[lane]) <= set(self.delivered[lane]) for lane in LANES))
        assert not any(consumer.done() for consumer in self._consumers), "no error ends a consumer"
        for consumer in self._consumers:
            consumer.cancel()
        await asyncio.gather(*self._consumers, return_exceptions=True)
        # Messages of a lost lease are delivered again, after their first time.
        assert {lane: list(dict.fromkeys(some)) for lane, some in self.delivered.items()} == self.accepted
