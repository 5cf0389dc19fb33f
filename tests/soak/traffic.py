"""The traffic of a soak: producers at an adjustable rate, consumers that sometimes fail, and what operators read."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections import defaultdict
from statistics import quantiles
from typing import Any

import msgspec

from fairlane import Client
from fairlane.client.consume import Batched
from fairlane.model.batch import Batch
from fairlane.model.message import Message, PushItem

LANES = 200
BATCH = 10
RETENTION_SECONDS = 30
"""Age at which finished messages and dead letters are deleted, so that a store without leaks stops growing."""
POISON_EACH = 100
"""Every hundredth message of a lane fails on all its attempts, and becomes a dead letter."""
SCRAPE_SECONDS = 10.0
READ_BY_OPERATORS = ("/metrics", "/api/v1/findings", "/api/v1/resources/queues", "/api/v1/dlq?queue=soak")


class Traffic:
    """Producers and consumers of one broker."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pause_seconds = 0.1
        """Time between two pushes of the producer. The soak adjusts it to the CPU that it may use."""
        self.pushed = 0
        self.delivered = 0
        self.violations: list[str] = []
        self._next: defaultdict[str, int] = defaultdict(int)
        """Number that the next message of each lane gets."""
        self._expected: dict[str, defaultdict[str, int]] = {"orders": defaultdict(int), "audit": defaultdict(int)}
        self._latencies: list[float] = []
        self._client = Client(url)
        self._tasks: list[asyncio.Task[object]] = []
        self._producer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        rules: dict[str, Any] = {"retention_enabled": True, "completed_retention_seconds": RETENTION_SECONDS}
        await self._client.queues.configure(
            "soak", retry_limit=1, dedup_seconds=60, dead_letter_retention_seconds=RETENTION_SECONDS, **rules
        )
        await self._client.queues.configure("unordered", ordering="unordered", **rules)
        for group in self._expected:
            await self._client.pop("soak", group=group)  # creates the group before the first message
        self._tasks = [
            asyncio.create_task(self._client.consume("soak", self._handle_order, group="orders", concurrency=4)),
            asyncio.create_task(
                self._client.consume("soak", Batched(self._audit), group="audit", batch=100, partitions=20)
            ),
            asyncio.create_task(self._client.consume("unordered", self._ignore, batch=20)),
            asyncio.create_task(self._operate()),
        ]
        self._producer = asyncio.create_task(self._produce())

    async def stop(self) -> None:
        """Stop the producer, wait until the consumers have everything, and stop them."""
        assert self._producer is not None
        self._producer.cancel()
        await asyncio.gather(self._producer, return_exceptions=True)
        give_up_at = time.monotonic() + 120
        while self._behind() and time.monotonic() < give_up_at:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        self.violations += [f"group {group} never got {missing} messages" for group, missing in self._behind().items()]
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        self.violations += [f"ended with {one!r}" for one in ended if isinstance(one, Exception)]
        await self._client.close()

    def latencies(self) -> tuple[float, float]:
        """Return the median and the 99th percentile of seconds from push to handler since the last call."""
        taken, self._latencies = self._latencies, []
        if len(taken) < 2:
            return 0.0, 0.0
        steps = quantiles(taken, n=100)
        return steps[49], steps[98]

    @property
    def behind(self) -> int:
        """Number of messages that the group which lags most has not received."""
        return max(self._behind().values(), default=0)

    def _behind(self) -> dict[str, int]:
        """Return the number of messages that each group has not received."""
        found = {
            group: sum(count - expected[lane] for lane, count in self._next.items())
            for group, expected in self._expected.items()
        }
        return {group: missing for group, missing in found.items() if missing}

    async def _produce(self) -> None:
        turn = 0
        while True:
            lanes = [f"lane-{(turn + offset) % LANES}" for offset in range(BATCH)]
            turn += BATCH
            items = [self._item(lane) for lane in lanes]
            items.append(PushItem.of("unordered", {"turn": turn}, priority=turn % 10))
            items.append(PushItem.of("unordered", {"turn": turn}, delay_ms=2000))
            # A lane counts as pushed before the answer, because its messages may be delivered first.
            await asyncio.shield(self._client.push_many(items))
            self.pushed += len(items)
            await asyncio.sleep(self.pause_seconds)

    def _item(self, lane: str) -> PushItem:
        number = self._next[lane]
        self._next[lane] += 1
        return PushItem.of("soak", {"number": number, "at": time.monotonic()}, partition=lane)

    async def _handle_order(self, message: Message[dict[str, float]]) -> None:
        number = int(message.data["number"])
        poison = number % POISON_EACH == POISON_EACH - 1
        if not (poison and message.failed_attempts):
            self._check("orders", message.partition, number)
            self._latencies.append(time.monotonic() - message.data["at"])
        if poison:
            raise ValueError("a message that always fails")

    async def _audit(self, batch: Batch[dict[str, float]]) -> None:
        for message in batch:
            self._check("audit", message.partition, int(message.data["number"]))

    async def _ignore(self, message: Message[object]) -> None:
        self.delivered += 1

    def _check(self, group: str, lane: str, number: int) -> None:
        """Record a violation unless this is the next message of the lane, or one that is delivered again."""
        expected = self._expected[group]
        if number > expected[lane]:
            self.violations.append(f"group {group} got message {number} of {lane} before message {expected[lane]}")
        expected[lane] = max(expected[lane], number + 1)
        self.delivered += 1

    async def _operate(self) -> None:
        """Read what a scrape and an open dashboard read, and open a connection for each."""
        while True:
            for path in READ_BY_OPERATORS:
                body = await asyncio.to_thread(_get, self.url + path)
                if path != "/metrics":
                    msgspec.json.decode(body)
            await asyncio.sleep(SCRAPE_SECONDS)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())
