"""Producers and consumers that outlive the broker and record its answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import aiohttp

from tests.http.wire import Wire

PUSHED_AT_ONCE = 3
LOST = (aiohttp.ClientError, TimeoutError, AssertionError)
"""Errors that say that the broker is unreachable or stopping."""


class Load:
    """Each producer numbers the messages of a partition of its own, and repeats what it got no answer for under the
    same ids; so a partition must end up with every number once, in order."""

    def __init__(self, wire: Wire, queue: str) -> None:
        self._wire = wire
        self._queue = queue
        self.answered: dict[str, int] = defaultdict(int)
        """Number of messages of each partition that the broker acknowledged."""
        self.delivered: dict[str, list[int]] = defaultdict(list)
        self.acked: dict[str, int] = defaultdict(lambda: -1)
        """The last acked message of each partition."""
        self.mistakes: list[str] = []
        self.enough = False

    async def produce(self, partition: str) -> None:
        while not self.enough:
            first = self.answered[partition]
            numbers = range(first, first + PUSHED_AT_ONCE)
            ids = [f"{partition}-{n}" for n in numbers]
            try:
                await self._wire.push(self._queue, *numbers, ids=ids, partition=partition)
            except LOST:
                await asyncio.sleep(0.02)
            else:
                self.answered[partition] += PUSHED_AT_ONCE

    async def consume(self) -> None:
        """Consume until every acknowledged message is acked and no producer runs."""
        while not (self.enough and self.done):
            try:
                messages = await self._wire.pop(self._queue, batch=10, wait="true", timeout=200, leaseSeconds=1)
                if not messages:
                    continue
                partition, numbers = messages[0]["partition"], [message["data"] for message in messages]
                self._check(partition, numbers)
                outcomes = await self._wire.ack(messages)
            except LOST:
                await asyncio.sleep(0.02)
                continue
            for number, outcome in zip(numbers, outcomes, strict=True):
                if outcome["success"]:
                    self.acked[partition] = max(self.acked[partition], number)

    def _check(self, partition: str, numbers: list[int]) -> None:
        seen = self.delivered[partition]
        if numbers != list(range(numbers[0], numbers[-1] + 1)):
            self.mistakes.append(f"{partition}: {numbers} is not in order")
        if numbers[0] <= self.acked[partition]:
            self.mistakes.append(f"{partition}: {numbers[0]} comes again, though {self.acked[partition]} is acked")
        if numbers[0] > max(seen, default=-1) + 1:
            self.mistakes.append(f"{partition}: {numbers[0]} comes after {max(seen, default=-1)}")
        seen.extend(numbers)

    @property
    def done(self) -> bool:
        return all(self.acked[partition] >= count - 1 for partition, count in self.answered.items())


async def whole_log(wire: Wire, queue: str) -> dict[str, list[int]]:
    """Return the messages of each partition, read by a new group from the beginning."""
    found: dict[str, list[int]] = defaultdict(list)
    while messages := await wire.pop(queue, consumerGroup="audit", batch=1000, partitions=100, autoAck="true"):
        for message in messages:
            found[message["partition"]].append(message["data"])
    return found
