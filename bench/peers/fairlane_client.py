"""Fairlane with its own client: one message per push(), push_many(), pop() and ack()."""

from __future__ import annotations

from importlib.metadata import version

import closed
import msgspec

from fairlane import Client, PushItem

QUEUE = "bench"
LANES = 64


class Fairlane:
    version = version("fairlane")

    async def open(self, url: str, payload: bytes, batch: int) -> None:
        self._client = await Client(url).__aenter__()
        self._data, self._batch = msgspec.json.decode(payload), batch
        self._items = [PushItem(queue=QUEUE, payload=payload, partition=f"lane-{n}") for n in range(LANES)]
        self._turn = 0

    async def push(self, task: int) -> int:
        await self._client.push(QUEUE, self._data, partition=f"lane-{task}")
        return 1

    async def push_batch(self, task: int) -> int:
        self._turn = (self._turn + 1) % LANES
        return len(await self._client.push_many([self._items[self._turn]] * self._batch))

    async def consume(self, task: int) -> int:
        batch = await self._client.pop(QUEUE, batch=self._batch, partitions=4)
        if batch:
            await self._client.ack(batch)
        return len(batch)

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)


if __name__ == "__main__":
    closed.main(Fairlane())
