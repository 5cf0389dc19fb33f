"""NATS JetStream with nats-py: a stream in files, acknowledged publishes, a pull consumer."""

from __future__ import annotations

import asyncio

import closed_loop
import nats
from nats.errors import TimeoutError as NothingThere
from nats.js.api import AckPolicy, ConsumerConfig, StorageType


class JetStream:
    async def open(self, url: str, task: closed_loop.Task) -> None:
        self._client = await nats.connect(url)
        self._subject, self._payload, self._batch = f"{task.name}.messages", task.payload, task.batch
        server = self._client.connected_server_version
        self.version = f"{server.major}.{server.minor}.{server.patch}"
        self._stream = self._client.jetstream(timeout=30)
        await self._stream.add_stream(name=task.name, subjects=[self._subject], storage=StorageType.FILE)
        # Acking the last message of a batch acks all of it.
        settings = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=100_000)
        self._pull = await self._stream.pull_subscribe(self._subject, durable=f"{task.name}-group", config=settings)
        self._turn = asyncio.Lock()

    async def push(self, task: int) -> int:
        await self._stream.publish(self._subject, self._payload)
        return 1

    async def push_batch(self, task: int) -> int:
        await asyncio.gather(*[self._stream.publish(self._subject, self._payload) for _ in range(self._batch)])
        return self._batch

    async def consume(self, task: int) -> int:
        async with self._turn:  # one pull at a time, because an ack covers all earlier messages
            try:
                found = await self._pull.fetch(self._batch, timeout=0.2)
            except NothingThere:
                return 0
            await found[-1].ack_sync()
            return len(found)

    async def close(self) -> None:
        await self._client.close()


if __name__ == "__main__":
    closed_loop.main(JetStream())
