"""Overload and outage over HTTP: three times the sustainable push rate, then a frozen store.

    python bench/overload.py [--quick]

Producers own a partition each and push one request after another, paced. Afterwards SQL says whether every accepted
message is stored once and in order. All of it shares this machine: the figures are for comparison with each other.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

sys.path.pop(0)  # this directory: its http.py is not the one of Python
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aiohttp
import asyncpg
import msgspec

from tests.broker_process import BrokerProcess, broker_process
from tests.faults.outages import frozen
from tests.postgres import PostgresServer, running_server

QUEUE = "overload"
BATCH = 50


@dataclass
class Run:
    """What producers were answered: latencies by answer, and the accepted numbers of each partition."""

    latencies: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    accepted: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    seconds: float = 0.0
    kept_at: float | None = None
    """When the first answer from the journal came."""

    def percentile(self, share: float, *answers: str) -> float:
        found = sorted(seconds for answer in answers or self.latencies for seconds in self.latencies[answer])
        return found[min(len(found) - 1, int(share * len(found)))] * 1e3 if found else 0.0

    def counts(self) -> dict[str, int]:
        return {answer: len(found) for answer, found in sorted(self.latencies.items())}


async def produce(session: aiohttp.ClientSession, url: str, run: Run, name: str, until: float, interval: float) -> None:
    number, due = 0, time.perf_counter()
    while time.perf_counter() < until:
        items = [{"queue": QUEUE, "partition": name, "payload": number + n} for n in range(BATCH)]
        began = time.perf_counter()
        async with session.post(f"{url}/api/v1/push", json={"items": items}) as response:
            answer = str(response.status)
            elements = msgspec.json.decode(await response.read())
        if response.status in (201, 202):
            run.accepted[name] += range(number, number + BATCH)
            if elements[0].get("durability") == "journal":
                # Who was on the way when the store fell silent waits until that is found out.
                found_out, run.kept_at = (
                    run.kept_at is not None and began > run.kept_at,
                    run.kept_at or time.perf_counter(),
                )
                answer = "202 journal" if found_out else "202 found out"
        run.latencies[answer].append(time.perf_counter() - began)
        number += BATCH
        due += interval
        await asyncio.sleep(max(0.0, due - time.perf_counter()))


async def load(url: str, label: str, *, producers: int, seconds: float, rate: float) -> Run:
    """So many producers for so long, at so many messages a second in all; 0 is as fast as they are answered."""
    run = Run()
    interval = producers * BATCH / rate if rate else 0.0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        began = time.perf_counter()
        await asyncio.gather(
            *(produce(session, url, run, f"{label}{n}", began + seconds, interval) for n in range(producers))
        )
        run.seconds = time.perf_counter() - began
    return run


async def count(database: asyncpg.Connection) -> int:
    return int(await database.fetchval("SELECT coalesce(sum(head), 0) FROM fairlane.partitions"))


async def settled(database: asyncpg.Connection, url: str) -> None:
    """Until the journal and the operation queue are empty."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(120):
        while True:
            async with session.get(f"{url}/api/v1/status/buffers") as answer:
                pending = (await answer.json())["pending"]
            waiting = await database.fetchval("SELECT coalesce(sum(open_operations), 0) FROM fairlane.partitions")
            if not pending and not waiting:
                return
            await asyncio.sleep(0.1)


async def faults(database: asyncpg.Connection, run: Run) -> Counter[str]:
    """Accepted messages that are missing, doubled or out of order, by SQL."""
    found: dict[str, list[int]] = defaultdict(list)
    for name, data in await database.fetch(
        'SELECT "partition", data FROM fairlane.messages WHERE queue = $1 ORDER BY "partition", position', QUEUE
    ):
        found[name].append(msgspec.json.decode(data))
    wrong: Counter[str] = Counter(lost=0, doubled=0, reordered=0)
    for name, accepted in run.accepted.items():
        stored = found[name]
        wrong["lost"] += len(set(accepted) - set(stored))
        wrong["doubled"] += len(stored) - len(set(stored))
        wrong["reordered"] += stored != sorted(stored)
    return wrong


def resident_mb(broker: BrokerProcess) -> float:
    return int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1]) * 4096 / 2**20


async def watch(broker: BrokerProcess, peak: list[float]) -> None:
    while True:
        peak[0] = max(peak[0], resident_mb(broker))
        await asyncio.sleep(0.1)


async def measure(broker: BrokerProcess, server: PostgresServer, url: str, *, seconds: float) -> bool:
    database = await asyncpg.connect(url)
    peak = [0.0]
    watching = asyncio.create_task(watch(broker, peak))
    try:
        await load(broker.url, "warm", producers=16, seconds=1, rate=0)
        before = await count(database)
        base = await load(broker.url, "base", producers=16, seconds=seconds / 2, rate=0)
        sustainable = (await count(database) - before) / base.seconds
        before, calm_mb = await count(database), resident_mb(broker)
        over = await load(broker.url, "over", producers=96, seconds=seconds, rate=3 * sustainable)
        goodput = (await count(database) - before) / over.seconds
        await settled(database, broker.url)
        wrong = await faults(database, over)
        frost = Run()
        pushing = asyncio.create_task(load(broker.url, "frost", producers=16, seconds=seconds / 2 + 2, rate=8_000))
        await asyncio.sleep(1)
        with frozen(server):
            await asyncio.sleep(seconds / 2)
        frost = await pushing
        await settled(database, broker.url)
        wrong += await faults(database, frost)
    finally:
        watching.cancel()
        await database.close()
    rows = [
        ("sustainable, messages/s", f"{sustainable:,.0f}", None),
        ("goodput at 3 x, of it", f"{goodput / sustainable:.2f}", goodput >= 0.8 * sustainable),
        ("p99 of any answer, ms", f"{over.percentile(0.99):.0f}", over.percentile(0.99) < 250),
        ("answers at 3 x", str(over.counts()), None),
        ("answers around the freeze", str(frost.counts()), None),
        (
            "p99 of 202 while frozen, ms",
            f"{frost.percentile(0.99, '202 journal'):.0f}",
            frost.percentile(0.99, "202 journal") < 50,
        ),
        ("memory, before and peak, MB", f"{calm_mb:.0f} / {peak[0]:.0f}", peak[0] < calm_mb + 512),
        ("lost, doubled, reordered", str([wrong[k] for k in ("lost", "doubled", "reordered")]), not wrong.total()),
    ]
    for name, value, good in rows:
        print(f"{name:32} {value:40} {'' if good is None else 'ok' if good else 'MISSED'}")
    return all(good in (None, True) for _, _, good in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the time")
    quick = parser.parse_args().quick
    with running_server(18) as server, broker_process(server.url()) as broker:
        good = asyncio.run(measure(broker, server, server.url(), seconds=5 if quick else 20))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
