"""RabbitMQ quorum queues with aio-pika: persistent messages, publisher confirms, an ack for each batch."""

from __future__ import annotations

import asyncio

import aio_pika
import closed_loop


class Quorum:
    async def open(self, url: str, task: closed_loop.Task) -> None:
        self._connection = await aio_pika.connect(url)
        self.version = str(self._connection.transport.connection.server_properties["version"])
        self._message = aio_pika.Message(task.payload, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        self._name, self._batch = task.name, task.batch
        self._channel = await self._connection.channel(publisher_confirms=True)
        self._queue = await self._channel.declare_queue(task.name, durable=True, arguments={"x-queue-type": "quorum"})
        self._arrived: asyncio.Queue[aio_pika.abc.AbstractIncomingMessage] | None = None
        self._subscribed = asyncio.Lock()

    async def push(self, task: int) -> int:
        await self._channel.default_exchange.publish(self._message, self._name)
        return 1

    async def push_batch(self, task: int) -> int:
        await asyncio.gather(*[self.push(task) for _ in range(self._batch)])
        return self._batch

    async def consume(self, task: int) -> int:
        async with self._subscribed:  # an ack with `multiple` covers all earlier messages
            if self._arrived is None:
                arrived = self._arrived = asyncio.Queue()
                channel = await self._connection.channel()
                await channel.set_qos(prefetch_count=min(10 * self._batch, 60_000))
                queue = await channel.get_queue(self._name)
                await queue.consume(arrived.put)
            try:
                last = await asyncio.wait_for(self._arrived.get(), 0.2)
            except TimeoutError:
                return 0
            count = 1
            while count < self._batch and not self._arrived.empty():
                last, count = self._arrived.get_nowait(), count + 1
            await last.ack(multiple=True)
            return count

    async def close(self) -> None:
        await self._connection.close()


if __name__ == "__main__":
    closed_loop.main(Quorum())
