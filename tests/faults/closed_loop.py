"""Producers over HTTP that wait for each answer before the next push, on their own connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from urllib.parse import urlsplit

import msgspec

QUEUE = "surplus"
_HEAD = b"POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


class ClosedLoop:
    """Closed-loop producers.

    `answers` counts the statuses. Each producer pushes `each` messages to every one of its partitions.
    """

    def __init__(self, url: str, *, producers: int, partitions_each: int = 1, each: int = 1) -> None:
        where = urlsplit(url)
        self._address = (where.hostname, where.port)
        self._partitions = [f"p{number}" for number in range(producers)]
        self._names = [name for name in range(partitions_each) for _ in range(each)]
        self.answers: Counter[int] = Counter()

    async def run(self, *, pushes: int | None = None, seconds: float | None = None) -> None:
        """Run all producers concurrently, each for a number of pushes or for some seconds."""
        stop = asyncio.Event()
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, stop.set)
        connections = [await asyncio.open_connection(*self._address) for _ in self._partitions]
        try:
            await asyncio.gather(
                *(
                    self._produce(partition, *connection, pushes, stop)
                    for partition, connection in zip(self._partitions, connections, strict=True)
                )
            )
        finally:
            for _, writer in connections:
                writer.close()

    async def _produce(
        self,
        partition: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pushes: int | None,
        stop: asyncio.Event,
    ) -> None:
        number = 0
        while number != pushes and not stop.is_set():
            items = [{"queue": QUEUE, "partition": f"{partition}-{name}", "payload": number} for name in self._names]
            body = msgspec.json.encode({"items": items})
            writer.write(_HEAD % len(body) + body)
            said = await reader.readuntil(b"\r\n\r\n")
            self.answers[int(said[9:12])] += 1
            await reader.readexactly(int(said.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            number += 1
