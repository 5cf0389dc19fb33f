"""Fairlane with its own client: push(), push_many(), and ack_and_pop(), as its consumers use it."""

from __future__ import annotations

from importlib.metadata import version

import closed_loop
import msgspec

from fairlane import Client, PushItem
from fairlane.client import Batch
from fairlane.model.ids import uuid7

LANES = 200


class Fairlane:
    version = version("fairlane")

    async def open(self, url: str, task: closed_loop.Task) -> None:
        self._client = await Client(url).__aenter__()
        self._task, self._data = task, msgspec.json.decode(task.payload)
        self._turn = 0
        self._taken: dict[int, Batch] = {}
        """The messages of each task that its next call acks."""

    async def push(self, task: int) -> int:
        await self._client.push(self._task.name, self._data, partition=f"lane-{task}")
        return 1

    async def push_batch(self, task: int) -> int:
        self._turn = (self._turn + 1) % LANES
        queue, payload, batch, _ = self._task
        lane = f"lane-{self._turn}"
        ids = uuid7.many(batch)[0] if self._task.ids else [None] * batch
        items = [PushItem(queue=queue, payload=payload, partition=lane, transaction_id=id) for id in ids]
        return len(await self._client.push_many(items))

    async def consume(self, task: int) -> int:
        done = self._taken.get(task, ())
        answer = await self._client.ack_and_pop(done, self._task.name, batch=self._task.batch, partitions=4)
        batch = self._taken[task] = answer.batch
        sum([len(message.raw) for message in batch])  # read each message, because decoding is lazy
        return len(batch)

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)


if __name__ == "__main__":
    closed_loop.main(Fairlane())
