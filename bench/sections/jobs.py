"""A worker whose handler does nothing, beside PgQueuer and Procrastinate on the same PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from bench.load import PAYLOAD
from bench.results import Comparison, Measurement, Results, percentiles
from bench.suite import STORES, Section, Suite, ours
from bench.systems import PEERS
from fairlane import App, Client, PushItem
from fairlane.worker import Worker

PROGRAMS = Path(__file__).parents[1] / "peers"
WORKLOAD = "no-op jobs, one worker"
PICK_UP = "push until the handler starts, idle"
ORDERINGS = {"per_key": "ordered", "unordered": "unordered"}
PARTITIONS = 1000
CONCURRENCIES = (1000, 4000)
"""Concurrency settings to try with the worker. The best one counts, as for the other systems."""


class Peer(NamedTuple):
    """Another job queue. `setting` is what `values` are tried for; a run has this `share` of the jobs."""

    name: str
    setting: str
    values: tuple[int, ...]
    share: float


PEER_QUEUES = (
    Peer("pgqueuer", "batch size", (10, 100, 1000), 0.4),
    Peer("procrastinate", "concurrency", (10, 50), 0.05),
)


async def run(suite: Suite) -> Results:
    """Try every setting in the first round, and keep the best of each system in the others."""
    results = Results()
    best: dict[str, int] = {}
    versions: dict[str, str] = {}
    peers = PEER_QUEUES if PEERS.exists() else ()
    if not peers:
        results.notes.append("PgQueuer and Procrastinate are LEFT OUT: `make bench-peers` installs them.")
    for number in range(suite.scale.rounds):
        for kind in STORES:
            for ordering, label in ORDERINGS.items():
                await suite.turn(f"jobs, round {number + 1}: {label}, {kind}")
                name = f"{ours(kind)}, {label}"
                values = (best[name],) if name in best else CONCURRENCIES
                tried = {value: await worker(suite, kind, ordering, value) for value in values}
                keep_best(results, best, name, tried)
            await suite.turn(f"jobs, round {number + 1}: idle, {kind}")
            results.add(PICK_UP, ours(kind), await pick_up(suite, kind), unit="jobs")
        for peer in peers:
            await suite.turn(f"jobs, round {number + 1}: {peer.name}")
            tried = {}
            for value in (best[peer.name],) if peer.name in best else peer.values:
                versions[peer.name], tried[value] = await peer_worker(suite, peer, value)
            keep_best(results, best, peer.name, tried)
    for peer in peers:
        for name in best:
            if name.startswith("Fairlane"):
                ratio = results.ratio((WORKLOAD, name), (WORKLOAD, peer.name))
                results.comparisons.append(Comparison(WORKLOAD, name, ratio, f"jobs per second of {peer.name}"))
    settings = [f"{peer.name} {versions[peer.name]} with {peer.setting} {best[peer.name]}" for peer in peers]
    settings += [f"{name} with concurrency {value}" for name, value in best.items() if name.startswith("Fairlane")]
    results.notes.append(f"Best settings: {'; '.join(settings)}.")
    return results


def keep_best(results: Results, best: dict[str, int], name: str, tried: dict[int, Measurement]) -> None:
    best[name] = max(tried, key=lambda value: tried[value].rate or 0)
    results.add(WORKLOAD, name, tried[best[name]], unit="jobs")


async def worker(suite: Suite, kind: str, ordering: str, concurrency: int) -> Measurement:
    """Run one worker of ours until all jobs are done."""
    jobs = suite.scale.jobs
    async with suite.store(kind) as url, suite.broker(kind, url) as running:
        await push_jobs(running.url, ordering, jobs)
        meter = suite.meter(running)
        await meter.begin()
        rate, cpu = await throughput(running.url, jobs, concurrency)
        await meter.end()
    return meter.cost(jobs)._replace(rate=rate, client_us=cpu)


async def push_jobs(url: str, ordering: str, jobs: int) -> None:
    async with Client(url) as client:
        await client.queues.configure("bench", ordering=ordering)
        for first in range(0, jobs, 1000):
            numbers = range(first, min(first + 1000, jobs))
            items = [PushItem(queue="bench", payload=PAYLOAD, partition=f"lane-{n % PARTITIONS}") for n in numbers]
            await client.push_many(items)


@asynccontextmanager
async def working(app: App, url: str) -> AsyncIterator[None]:
    worker = Worker(app, url)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await task


async def throughput(url: str, jobs: int, concurrency: int) -> tuple[float, float]:
    """Return jobs per second, and microseconds of CPU per job in the worker."""
    app = App()
    left = jobs
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.handler("bench", concurrency=concurrency)
    async def handle(data: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            loop.call_soon_threadsafe(done.set)

    began, cpu = time.perf_counter(), time.process_time()
    async with working(app, url):
        await done.wait()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return jobs / seconds, cpu / jobs * 1e6


async def pick_up(suite: Suite, kind: str) -> Measurement:
    """Measure the time from the call of a push to the first line of the handler, one job at a time."""
    app = App()
    loop = asyncio.get_running_loop()
    started: asyncio.Queue[float] = asyncio.Queue()

    @app.handler("single")
    async def handle(number: int) -> None:
        loop.call_soon_threadsafe(started.put_nowait, time.perf_counter())

    taken = []
    async with (
        suite.store(kind) as url,
        suite.broker(kind, url) as running,
        Client(running.url) as client,
        working(app, running.url),
    ):
        for number in range(20 if suite.quick else 200):
            began = time.perf_counter()
            await client.push("single", number, partition=f"lane-{number}")
            taken.append(1e3 * (await started.get() - began))
            await asyncio.sleep(0.01)
    p50, p99, p999 = percentiles(taken)
    return Measurement(p50=p50, p99=p99, p999=p999)


async def peer_worker(suite: Suite, peer: Peer, value: int) -> tuple[str, Measurement]:
    """Run one worker of another job queue, and return its version and the measurement."""
    async with suite.store("postgres") as url:
        process = await asyncio.create_subprocess_exec(
            *(PEERS, PROGRAMS / f"{peer.name}.py", url, str(max(500, int(suite.scale.jobs * peer.share))), str(value)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate(PAYLOAD)
    if process.returncode:
        raise SystemExit(f"{peer.name} ended with exit code {process.returncode}")
    answer = json.loads(output.splitlines()[-1])
    return answer["version"], Measurement(rate=answer["rate"], client_us=answer["cpu"])


JOBS = Section(
    "jobs",
    "Workers",
    "One worker process with a handler that does nothing. Jobs of 98 bytes wait when it starts, ordered ones in 1,000 "
    "partitions. PgQueuer and Procrastinate use the same PostgreSQL server. Each system runs with the best of its "
    "settings, which the first round finds. The client is the worker.",
    run,
)
