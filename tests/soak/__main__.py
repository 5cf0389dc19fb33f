"""Run steady traffic against a broker on each store for hours, and show what grows.

    make soak                       two hours at about 30 % of the CPU
    make soak ARGS="--minutes 15"   less of it

Prints resident memory, open descriptors, the size of the store and the time from push to handler. Exits with 1 if
memory, descriptors or the store grew beyond a bound, or if a message was lost or came out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from bench.usage import usage_of
from tests.broker_process import BrokerProcess
from tests.postgres import PostgresServer, running_server
from tests.soak.samples import MEBIBYTE, Sample, descriptors, growth, leaks, resident_bytes
from tests.soak.traffic import Traffic

SAMPLES = 60
"""Number of samples of a soak. Twelve of them are printed."""
PAUSE_SECONDS = (0.005, 5.0)
"""Shortest and longest pause of a producer."""
BEHIND_MAX = 1000
"""Messages without a handler above which the traffic slows down, because the machine is busy with something else."""
HEADINGS = (
    f"{'store':11} {'minute':>7} {'RSS':>9} {'files':>6} {'store':>9} {'CPU':>5} {'pushed':>10} {'p50':>8} {'p99':>8}"
)


class Soaked:
    """A broker under traffic. `store_bytes` returns the size of its store."""

    def __init__(
        self, kind: str, broker: BrokerProcess, pids: Sequence[int], store_bytes: Callable[[], Awaitable[int]]
    ) -> None:
        self.kind = kind
        self.samples: list[Sample] = []
        self.traffic = Traffic(broker.url)
        self._pid = broker.pid
        self._pids = [broker.pid, *pids]
        self._store_bytes = store_bytes
        self._cpu_seconds = 0.0
        self._sampled_at = 0.0

    async def sample(self, began: float, cpu_share: float) -> None:
        """Add a sample, and adjust the traffic so that this store uses `cpu_share` of all cores."""
        now = time.monotonic()
        cpu_seconds = sum(used.cpu_seconds for used in usage_of(self._pids).values())
        used = 0.0
        if self._sampled_at:
            used = (cpu_seconds - self._cpu_seconds) / (now - self._sampled_at) / (os.cpu_count() or 1)
            change = 2.0 if self.traffic.behind > BEHIND_MAX else max(0.5, min(2.0, used / cpu_share))
            pause = self.traffic.pause_seconds * change
            self.traffic.pause_seconds = min(max(pause, PAUSE_SECONDS[0]), PAUSE_SECONDS[1])
        self._cpu_seconds, self._sampled_at = cpu_seconds, now
        self.samples.append(
            Sample(
                now - began,
                resident_bytes(self._pid),
                descriptors(self._pid),
                await self._store_bytes(),
                used,
                self.traffic.pushed,
                *self.traffic.latencies(),
            )
        )

    def problems(self) -> list[str]:
        return [*leaks(self.samples[1:]), *self.traffic.violations[:10]]


def row(kind: str, one: Sample) -> str:
    return (
        f"{kind:11} {one.seconds / 60:7.1f} {one.rss_bytes / MEBIBYTE:5.0f} MiB {one.descriptors:6} "
        f"{one.store_bytes / MEBIBYTE:5.1f} MiB {one.cpu_share:5.0%} {one.pushed:10,} "
        f"{one.median_seconds * 1000:5.0f} ms {one.p99_seconds * 1000:5.0f} ms"
    )


async def soak(kinds: Sequence[str], seconds: float, cpu_share: float, directory: Path) -> bool:
    """Run the soak, print its samples and its verdict, and return True if nothing is wrong."""
    async with AsyncExitStack() as stack:
        soaked = [await _start(kind, directory, stack) for kind in kinds]
        began = time.monotonic()
        for one in soaked:
            await one.traffic.start()
        print(HEADINGS, flush=True)
        for number in range(SAMPLES + 1):
            await asyncio.sleep(max(0.0, began + seconds * number / SAMPLES - time.monotonic()))
            for one in soaked:
                await one.sample(began, cpu_share / len(soaked))
                if number % (SAMPLES // 12) == 0:
                    print(row(one.kind, one.samples[-1]), flush=True)
        for one in soaked:
            await one.traffic.stop()
    good = True
    for one in soaked:
        early, late = growth(one.samples[1:], lambda sample: sample.median_seconds)
        print(f"{one.kind}: median time to the handler {early * 1000:.0f} ms early, {late * 1000:.0f} ms late")
        for problem in one.problems():
            print(f"PROBLEM: {one.kind}: {problem}")
            good = False
    return good


async def _start(kind: str, directory: Path, stack: AsyncExitStack) -> Soaked:
    data_dir = directory / kind
    data_dir.mkdir()
    url, server = f"sqlite:///{data_dir}/queue.db", None
    if kind == "postgresql":
        server = await asyncio.to_thread(stack.enter_context, running_server(18))
        url = server.url()
    broker = BrokerProcess(url, data_dir=data_dir)
    await asyncio.to_thread(broker.start)
    stack.push_async_callback(asyncio.to_thread, broker.stop)

    async def file_bytes() -> int:
        return sum(file.stat().st_size for file in data_dir.glob("queue.db*"))

    async def database_bytes(server: PostgresServer) -> int:
        async with server.connect() as admin:
            return int(await admin.fetchval("SELECT pg_database_size(current_database())"))

    if server is None:
        return Soaked(kind, broker, [], file_bytes)
    return Soaked(kind, broker, [server.pid], lambda: database_bytes(server))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120.0, help="how long to run (120)")
    parser.add_argument("--cpu", type=float, default=0.3, help="share of all cores to use (0.3)")
    parser.add_argument("--store", choices=["sqlite", "postgresql"], help="one store only")
    chosen = parser.parse_args()
    kinds = [chosen.store] if chosen.store else ["sqlite", "postgresql"]
    with tempfile.TemporaryDirectory(prefix="fairlane-soak-") as directory:
        return 0 if asyncio.run(soak(kinds, chosen.minutes * 60, chosen.cpu, Path(directory))) else 1


if __name__ == "__main__":
    sys.exit(main())
