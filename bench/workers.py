"""Measure a worker: jobs a second with a handler that does nothing, and how soon a single job is picked up.

    python -m bench.workers                 SQLite and PostgreSQL
    python -m bench.workers --store sqlite --quick

One worker in this process, one broker in another. The ordered queue has a thousand partitions. On PostgreSQL the same
jobs are then done by one worker of PgQueuer and of Procrastinate, on the same server, each with the best of its
settings. A missed target is printed as MISSED and does not change the exit code: the figures belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.load import PAYLOAD
from bench.postgres import MAJORS, PostgresServer, fresh_database, running, settings_in_force
from bench.report import print_machine, verdict
from fairlane import App, Client, PushItem
from fairlane.worker import Worker
from tests.broker_process import broker_process

PARTITIONS = 1000
CONCURRENCIES = (1000, 4000)  # to try, as others' settings are
PICK_UP_SECONDS_MAX = 0.010
PEERS = Path(__file__).resolve().parents[1] / ".venv-peers/bin/python"


class Peer(NamedTuple):
    """`settings` are those to try: batch sizes, or how many jobs at once. `share` of the jobs are enough of a run."""

    name: str
    setting: str
    settings: tuple[int, ...]
    share: float
    target: float
    """How many times as fast a worker is to be."""


RIVALS = (
    Peer("pgqueuer", "batch size", (10, 100, 1000), 0.4, 3.0),
    Peer("procrastinate", "concurrency", (10, 50), 0.05, 40.0),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--jobs", type=int, help="of each run (50000)")
    parser.add_argument("--quick", action="store_true", help="few jobs: does it run, not how fast")
    parser.add_argument("--postgres", type=int, choices=MAJORS, default=max(MAJORS), help="version of the server")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    parser.add_argument("--alone", action="store_true", help="without PgQueuer and Procrastinate")
    chosen = parser.parse_args()
    chosen.jobs = chosen.jobs or (2000 if chosen.quick else 50_000)
    return chosen


@asynccontextmanager
async def working(app: App, url: str) -> AsyncIterator[None]:
    worker = Worker(app, url)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await task


async def pushed(url: str, queue: str, ordering: str, jobs: int) -> None:
    """So many jobs wait in a queue."""
    async with Client(url) as client:
        await client.queues.configure(queue, ordering=ordering)
        for first in range(0, jobs, 1000):
            numbers = range(first, min(first + 1000, jobs))
            items = [PushItem(queue=queue, payload=PAYLOAD, partition=f"lane-{n % PARTITIONS}") for n in numbers]
            await client.push_many(items)


async def throughput(url: str, queue: str, jobs: int, concurrency: int) -> tuple[float, float]:
    """Jobs a second of those that wait, and microseconds of CPU that one costs the worker."""
    app = App()
    left = jobs
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.handler(queue, concurrency=concurrency)
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


async def pick_up(url: str, jobs: int) -> float:
    """Seconds from the call of a push to the first line of the handler on an idle system: the median."""
    app = App()
    loop = asyncio.get_running_loop()
    picked: asyncio.Queue[float] = asyncio.Queue()

    @app.handler("single")
    async def handle(number: int) -> None:
        loop.call_soon_threadsafe(picked.put_nowait, time.perf_counter())

    took = []
    async with Client(url) as client, working(app, url):
        for number in range(jobs):
            began = time.perf_counter()
            await client.push("single", number, partition=f"lane-{number}")
            took.append(await picked.get() - began)
            await asyncio.sleep(0.01)
    return statistics.median(took)


async def measured(store: str, url: str, jobs: int, table: Table) -> dict[str, float]:
    """Adds rows to the table; the rates."""
    rates = {}
    with broker_process(url) as broker:
        for name, ordering in (("ordered, 1000 partitions", "per_key"), ("unordered", "unordered")):
            tries = []
            for tried in CONCURRENCIES:
                queue = f"{ordering}-{tried}"
                await pushed(broker.url, queue, ordering, jobs)
                tries.append((await throughput(broker.url, queue, jobs, tried), tried))
            (rate, cpu), best = max(tries)
            rates[name] = rate
            said = f"{cpu:.0f} µs of CPU in the worker for a job"
            table.add_row(store, f"{name}, concurrency {best}", f"{rate:,.0f} jobs/s", said)
        median = await pick_up(broker.url, 20 if jobs <= 2000 else 200)
        said = verdict(median, PICK_UP_SECONDS_MAX, at_most=True)
        table.add_row(store, "pick-up of a single job, p50", f"{median * 1000:.1f} ms", said)
    return rates


async def beside(peer: Peer, server: PostgresServer, jobs: int, ours: dict[str, float], table: Table) -> None:
    """The best that another job queue reaches, and how many times that a worker does."""
    found = []
    for tried in peer.settings:
        async with fresh_database(server) as url:
            found.append((await run_peer(peer, url, jobs, tried), tried))
    (best, cpu, version), setting = max(found)
    ratios = ", ".join(
        f"{name}: {rate / best:.1f} times {verdict(rate / best, peer.target)}" for name, rate in ours.items()
    )
    name = f"{peer.name} {version}, {peer.setting} {setting}"
    table.add_row("the same", name, f"{best:,.0f} jobs/s", f"{cpu:.0f} µs of CPU in the worker for a job")
    table.add_row("", "", "", f"{ratios} (target {peer.target:g})")


async def run_peer(peer: Peer, url: str, jobs: int, setting: int) -> tuple[float, float, str]:
    """Jobs a second, microseconds of CPU that one costs, and the version. It does its share of so many jobs."""
    program = Path(__file__).with_name("peers") / f"{peer.name}.py"
    process = await asyncio.create_subprocess_exec(
        *(PEERS, program, url, str(max(500, int(jobs * peer.share))), str(setting)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate(PAYLOAD)
    if process.returncode:
        raise SystemExit(f"{peer.name} ended with {process.returncode}")
    answer = json.loads(said.splitlines()[-1])
    return answer["rate"], answer["cpu"], answer["version"]


async def main() -> None:
    chosen = arguments()
    console = Console(width=120)
    table = Table("store", "run", "measured", "", width=120)
    settings: dict[str, str] | None = None
    if chosen.store != "postgres":
        with tempfile.TemporaryDirectory(dir=chosen.directory) as directory:
            await measured("sqlite", f"sqlite:///{directory}/bench.db", chosen.jobs, table)
    if chosen.store != "sqlite":
        with running(chosen.directory, major=chosen.postgres) as server:
            settings = await settings_in_force(server)
            async with fresh_database(server) as url:
                ours = await measured(f"postgres {chosen.postgres}", url, chosen.jobs, table)
            if not chosen.alone:
                for peer in RIVALS:
                    await beside(peer, server, chosen.jobs, ours, table)
    print_machine(console, chosen.directory, settings)
    console.print(table)


if __name__ == "__main__":
    asyncio.run(main())
