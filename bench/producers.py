"""Producers of a load over HTTP that takes little of the machine it shares: no client library, one connection each."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast
from urllib.parse import urlsplit

BATCH = 100
_TICK_SECONDS = 0.001
"""What a loop can wait at least. For less it would not wait at all, and the load take a core for itself."""
_JOURNAL = b'"durability":"journal"'


class Answer(NamedTuple):
    kind: str
    began: float
    ended: float


def percentile(share: float, answers: Iterable[Answer]) -> float:
    """In milliseconds."""
    return 1e3 * _at(share, [answer.ended - answer.began for answer in answers])


def _at(share: float, values: list[float]) -> float:
    values.sort()
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


class Run:
    """One load: who is free to push, what was answered, and how late requests were sent."""

    def __init__(self, producers: Sequence[Producer], ends_at: float) -> None:
        self.free = deque(producers)
        self.ends_at = ends_at
        self.answers: list[Answer] = []
        self.late: list[float] = []
        self.seconds = 0.0
        self._producers = len(producers)
        self._closed_loop = False
        self._all_free = asyncio.Event()

    def counts(self) -> dict[str, int]:
        return dict(sorted(Counter(answer.kind for answer in self.answers).items()))

    def late_ms(self, share: float) -> float:
        return 1e3 * _at(share, self.late)

    def answered(self, producer: Producer, answer: Answer) -> None:
        self.answers.append(answer)
        self.free.append(producer)
        if self._closed_loop and answer.ended < self.ends_at:
            self.free.popleft().push()
        elif len(self.free) == self._producers:
            self._all_free.set()

    async def keep_busy(self, callers: int) -> None:
        """So many producers at once, each in its turn, as fast as they are answered."""
        self._closed_loop = True
        for _ in range(callers):
            self.free.popleft().push()
        await self._all_free.wait()

    async def pace(self, rate: float) -> None:
        """Requests by the clock. One that no producer is free for is not sent: each waits for its last answer."""
        due, interval = time.perf_counter(), BATCH / rate
        while due < self.ends_at:
            now = time.perf_counter()
            if due > now:
                await asyncio.sleep(max(_TICK_SECONDS, due - now))
                continue
            if self.free:
                self.late.append(now - due)
                self.free.popleft().push()
            due += interval
        self._all_free.clear()
        if len(self.free) < self._producers:
            await self._all_free.wait()


class Producer(asyncio.Protocol):
    """Pushes numbers to partitions of its own, and remembers which were accepted."""

    def __init__(self, queue: str, partitions: list[str]) -> None:
        self.partitions = partitions
        self.accepted: list[int] = []
        """Of every lane alike: each request brings the same numbers to each."""
        self.run: Run
        self._each = BATCH // len(partitions)
        self._heads = [f'{{"queue":"{queue}","partition":"{partition}","payload":' for partition in partitions]
        self._number = 0
        self._began = 0.0
        self._got = b""
        self._waits = False
        self._transport: asyncio.Transport

    async def connect(self, host: str, port: int, run: Run) -> None:
        self.run = run
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waits:
            self._waits = False
            self.run.answered(self, Answer("hung up", self._began, time.perf_counter()))

    def close(self) -> None:
        self._transport.close()

    def push(self) -> None:
        numbers = [f"{number}}}" for number in range(self._number, self._number + self._each)]
        items = ",".join([head + number for head in self._heads for number in numbers])
        body = f'{{"items":[{items}]}}'
        head = (
            "POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._began = time.perf_counter()
        self._waits = True
        self._transport.write((head + body).encode())

    def data_received(self, data: bytes) -> None:
        ended = time.perf_counter()
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return
        kind, self._got, self._waits = head[9:12].decode(), b"", False
        if kind in ("201", "202"):
            self.accepted += range(self._number, self._number + self._each)
            kind += " journal" if kind == "202" and _JOURNAL in body else ""
        self._number += self._each
        self.run.answered(self, Answer(kind, self._began, ended))


async def load(url: str, producers: Sequence[Producer], *, seconds: float, rate: float = 0.0, callers: int = 0) -> Run:
    """These producers for so long, at `rate` messages a second in all, or as fast as `callers` of them are answered."""
    where = urlsplit(url)
    began = time.perf_counter()
    run = Run(producers, began + seconds)
    assert where.hostname is not None
    assert where.port is not None
    for producer in producers:
        await producer.connect(where.hostname, where.port, run)
    began = time.perf_counter()
    run.ends_at = began + seconds
    await (run.pace(rate) if rate else run.keep_busy(callers))
    run.seconds = time.perf_counter() - began
    for producer in producers:
        producer.close()
    return run
