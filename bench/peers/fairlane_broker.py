"""Fairlane in the process of the program: a broker that the program opened, without HTTP."""

from __future__ import annotations

from importlib.metadata import version

import closed_loop
import msgspec

from fairlane import AckItem, Batch, Broker, PushItem

LANES = 200


class Embedded:
    version = version("fairlane")

    async def open(self, url: str, task: closed_loop.Task) -> None:
        self._opened = Broker.open(url)
        self._broker = await self._opened.__aenter__()
        self._task, self._data = task, msgspec.json.decode(task.payload)
        self._turn = 0
        self._held: dict[int, Batch[object]] = {}

    async def push(self, task: int) -> int:
        await self._broker.push(self._task.name, self._data, partition=f"lane-{task}")
        return 1

    async def push_batch(self, task: int) -> int:
        self._turn = (self._turn + 1) % LANES
        queue, payload, batch, _ = self._task
        lane = f"lane-{self._turn}"
        return len(
            await self._broker.push_many([PushItem(queue=queue, payload=payload, partition=lane) for _ in range(batch)])
        )

    async def consume(self, task: int) -> int:
        """Ack the messages of this task's last call and pop the next ones. Returns how many were acked."""
        queue, limit, done = self._task.name, self._task.batch, self._held.pop(task, None)
        if not done:
            self._held[task] = await self._broker.pop(queue, batch=limit, partitions=4)
            return 0
        assert sum([len(message.raw) for message in done])  # read each message, because decoding is lazy
        acks = [
            AckItem(
                transaction_id=last.transaction_id,
                partition=partition,
                lease=last.lease,
                position=last.position,
                cumulative=True,
            )
            for partition, last in {message.partition_id: message for message in done}.items()
        ]
        acked = await self._broker.ack_and_pop(acks, queue, batch=limit, partitions=4)
        assert all(outcome.success for outcome in acked.outcomes)
        self._held[task] = acked.batch
        return len(done)

    async def consume_one(self, task: int) -> int:
        batch = await self._broker.pop(self._task.name)
        if sum([len(message.raw) for message in batch]):
            await self._broker.ack(batch)
        return len(batch)

    async def close(self) -> None:
        await self._opened.__aexit__(None, None, None)


if __name__ == "__main__":
    closed_loop.main(Embedded())
