"""Push throughput while nobody looks, and beside open dashboards and a scrape each second.

Usage: python -m bench.observability [--quick] [--tabs 5] [--rounds 8] [--seconds 5]

Rounds with and without watchers take turns, so that what else the machine does meets both alike. The broker is a
process of its own on a new SQLite file; watchers and producers are tasks of this one. The broker is what limits the
rate, so that its CPU for a message tells the same as the rate, and is stable where that is not: it decides."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import aiohttp

from bench.usage import difference, usage_of

PATHS = (
    "/api/v1/findings",
    "/api/v1/resources/overview",
    "/api/v1/history?minutes=5",
    "/api/v1/resources/queues?limit=50&sort=rate",
    "/api/v1/status/engine",
)
PRODUCERS = 8
BATCH = 100
SHARE_MAX = 0.03


async def produce(session: aiohttp.ClientSession, base: str, queue: str, until: float) -> int:
    items = [{"queue": queue, "partition": f"p{number % 10}", "payload": {"n": number}} for number in range(BATCH)]
    body, pushed = json.dumps({"items": items}), 0
    while time.monotonic() < until:
        async with session.post(
            f"{base}/api/v1/push", data=body, headers={"content-type": "application/json"}
        ) as answer:
            await answer.read()
            pushed += BATCH if answer.status == 201 else 0
    return pushed


async def tab(session: aiohttp.ClientSession, base: str) -> None:
    query = urlencode([("watch", path) for path in PATHS])
    async with session.get(f"{base}/api/v1/live?{query}", timeout=aiohttp.ClientTimeout(total=None)) as answer:
        async for _ in answer.content.iter_any():
            pass


async def scrape(session: aiohttp.ClientSession, base: str) -> None:
    while True:
        async with session.get(f"{base}/metrics") as answer:
            await answer.read()
        await asyncio.sleep(1)


async def measured(base: str, pid: int, *, tabs: int, seconds: float) -> tuple[float, float]:
    """Messages pushed a second, and microseconds of the broker's CPU for one."""
    before = usage_of([pid])
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        watchers = [asyncio.create_task(tab(session, base)) for _ in range(tabs)]
        if tabs:
            watchers.append(asyncio.create_task(scrape(session, base)))
        until = time.monotonic() + seconds
        pushed = await asyncio.gather(*(produce(session, base, f"q{n}", until) for n in range(PRODUCERS)))
        for one in watchers:
            one.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
    return sum(pushed) / seconds, difference(before, usage_of([pid])).cpu_seconds / sum(pushed) * 1e6


async def serving(base: str) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(30):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{base}/readyz") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)


async def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--tabs", type=int, default=5)
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--seconds", type=float, default=5.0)
    options.add_argument("--port", type=int, default=16_632)
    given = options.parse_args()
    rounds, seconds = (1, 2.0) if given.quick else (given.rounds, given.seconds)
    base = f"http://127.0.0.1:{given.port}"
    with tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder:
        command = [str(Path(sys.executable).with_name("fairlane")), "serve", "--port", str(given.port)]
        store = [f"--store=sqlite:///{folder}/queue.db", f"--data-dir={folder}/data"]
        broker = await asyncio.create_subprocess_exec(*command, *store, stderr=asyncio.subprocess.DEVNULL)
        try:
            await serving(base)
            pid = broker.pid
            await measured(base, pid, tabs=0, seconds=min(2.0, seconds))  # the queues are made, the code is warm
            alone: list[tuple[float, float]] = []
            watched: list[tuple[float, float]] = []
            for _ in range(rounds):
                alone.append(await measured(base, pid, tabs=0, seconds=seconds))
                watched.append(await measured(base, pid, tabs=given.tabs, seconds=seconds))
        finally:
            os.kill(broker.pid, signal.SIGTERM)
            await broker.wait()
    cost = statistics.median(one[1] for one in watched) / statistics.median(one[1] for one in alone) - 1
    for name, found in (("alone", alone), (f"by {given.tabs} tabs and a scrape a second", watched)):
        rates, costs = zip(*found, strict=True)
        spread = f"({min(rates):,.0f} to {max(rates):,.0f})"
        cpu = f"{statistics.median(costs):.2f} us each"
        print(f"{statistics.median(rates):10,.0f} pushed a second {spread}, {cpu}, {name}")
    print(f"{cost:10.1%} of the broker's CPU for a message, of {SHARE_MAX:.0%} that it may be")
    return 0 if given.quick or cost < SHARE_MAX else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
