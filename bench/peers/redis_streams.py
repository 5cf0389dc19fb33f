"""Redis Streams with redis-py: XADD, XREADGROUP and XACK; a batch is one pipeline."""

from __future__ import annotations

import closed_loop
from redis.asyncio import Redis

GROUP = "group"


class Streams:
    async def open(self, url: str, task: closed_loop.Task) -> None:
        self._redis = Redis.from_url(url, max_connections=200)
        self._stream, self._fields, self._batch = task.name, {"data": task.payload}, task.batch
        self.version = (await self._redis.info("server"))["redis_version"]
        if not await self._redis.exists(self._stream):
            await self._redis.xgroup_create(self._stream, GROUP, id="0", mkstream=True)

    async def push(self, task: int) -> int:
        await self._redis.xadd(self._stream, self._fields)
        return 1

    async def push_batch(self, task: int) -> int:
        pipeline = self._redis.pipeline(transaction=False)
        for _ in range(self._batch):
            pipeline.xadd(self._stream, self._fields)
        return len(await pipeline.execute())

    async def consume(self, task: int) -> int:
        found = await self._redis.xreadgroup(GROUP, f"consumer-{task}", {self._stream: ">"}, count=self._batch)
        if not found:
            return 0
        ids = [id for id, _ in found[0][1]]
        return int(await self._redis.xack(self._stream, GROUP, *ids))

    async def close(self) -> None:
        await self._redis.aclose()


if __name__ == "__main__":
    closed_loop.main(Streams())
