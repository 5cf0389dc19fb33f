"""Producers and consumers that use a queue while it is moved."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress

from fairlane.broker.broker import Broker
from fairlane.errors import Unavailable
from tests.until import until

LANES = ("a", "b", "c")


class Traffic:
    """Producers and consumers that use one queue through several brokers until they are stopped."""

    def __init__(self, brokers: list[Broker], queue: str) -> None:
        self.brokers = brokers
        self.queue = queue
        self.pushed: dict[str, int] = defaultdict(int)
        self.got: dict[str, list[int]] = defaultdict(list)
        self.errors: list[Exception] = []
        self.stopped = False

    async def __aenter__(self) -> Traffic:
        consumers = [self._consume(broker) for broker in self.brokers]
        self._tasks = [asyncio.create_task(one) for one in (*map(self._produce, LANES), *consumers)]
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.stopped = True
        await asyncio.gather(*self._tasks)

    async def some(self) -> None:
        """Wait until more messages were pushed and consumed."""
        pushed, got = sum(self.pushed.values()), sum(map(len, self.got.values()))
        await until(lambda: sum(self.pushed.values()) > pushed + 20 and sum(map(len, self.got.values())) > got + 5)

    async def _produce(self, lane: str) -> None:
        """Push numbers, each until it is stored. The id lets a repeated push be stored once."""
        broker = self.brokers[LANES.index(lane) % len(self.brokers)]
        while not self.stopped:
            number = self.pushed[lane]
            try:
                await broker.push(self.queue, number, partition=lane, transaction_id=f"{lane} {number}")
            except Unavailable as error:
                self.errors.append(error)
                continue
            self.pushed[lane] += 1

    async def _consume(self, broker: Broker) -> None:
        while not self.stopped:
            with suppress(Unavailable):
                await self._work(broker)

    async def _work(self, broker: Broker) -> bool:
        """Pop and ack a batch, and note the messages whose ack succeeded. Returns False if there was none."""
        batch = await broker.pop(self.queue, batch=7, wait=0.2)
        for message in batch:
            [outcome] = await broker.ack(message)
            if outcome.success and not outcome.noop:
                self.got[message.partition].append(message.data)
        return bool(batch)

    async def finish(self) -> None:
        """Consume the rest, and check that each lane was consumed in order, without a gap or a repetition."""
        while await self._work(self.brokers[0]):
            pass
        for lane in LANES:
            assert self.got[lane] == list(range(self.pushed[lane]))
