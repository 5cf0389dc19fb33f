"""Overload and outage over HTTP: three times the sustainable push rate, then a frozen store.

    python -m bench.overload [--quick]

Producers own their partitions and push one request after another, each on a connection of its own. What is sustainable
is what the store took from as many callers as keep it busy, who push as fast as they are answered: the same messages
to the same partitions through the same door. That is found before and after the overload, for a shared machine is
faster at some times than at others, and the mean of both counts. In between requests are sent by the clock, each
when a producer is free that got its last answer; how late that was is shown, for it is the load's own delay. First by
so many producers that their requests fit into the longest wait, who are never refused, then by many more: a flood.
What was stored counts until nothing waits any more, by the time that took. Every answer counts, from the first to the
last; those while the store is frozen too, also of who was on the way when it fell silent. Afterwards SQL
says whether every accepted message is stored once and in order. All of it shares this machine: the figures are for
comparison with each other.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import aiohttp
import asyncpg
import msgspec
from rich.console import Console

from bench.figures import Target
from bench.producers import BATCH, Producer, Run, load, percentile
from fairlane.runtime.process import new_event_loop
from tests.broker_process import BrokerProcess, broker_process
from tests.faults.outages import frozen
from tests.postgres import PostgresServer, running_server

QUEUE = "overload"
SYSTEM = "Fairlane, PostgreSQL"
PARTITIONS = 20
"""Partitions of each producer, all of them in each of its requests."""
PRODUCERS, FROST_PRODUCERS = 256, 16
FLOOD_PRODUCERS, FLOOD_PARTITIONS = 2_000, 5
"""More requests at once than the store takes in the longest wait."""
BUSY_CALLERS = (8, 16, 32)
"""At once."""
FROST_RATE, FROST_SECONDS = 32_000, 10.0
"""Messages a second, each request to one partition, and how long the store is frozen."""
CALM_SECONDS = 1.0


async def count(database: asyncpg.Connection) -> int:
    return int(await database.fetchval("SELECT coalesce(sum(head), 0) FROM fairlane.partitions"))


async def acked(database: asyncpg.Connection, url: str) -> None:
    """Until the journal and the operation queue are empty."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(120):
        while True:
            async with session.get(f"{url}/api/v1/status/buffers") as answer:
                pending = (await answer.json())["pending"]
            waiting = await database.fetchval("SELECT coalesce(sum(open_operations), 0) FROM fairlane.partitions")
            if not pending and not waiting:
                return
            await asyncio.sleep(0.1)


async def faults(database: asyncpg.Connection, producers: list[Producer]) -> Counter[str]:
    """Accepted messages that are missing, doubled or out of order, by SQL."""
    found: dict[str, list[int]] = defaultdict(list)
    for name, data in await database.fetch(
        'SELECT "partition", data FROM fairlane.messages WHERE queue = $1 ORDER BY "partition", position', QUEUE
    ):
        found[name].append(msgspec.json.decode(data))
    wrong: Counter[str] = Counter(lost=0, doubled=0, reordered=0)
    for producer in producers:
        for partition in producer.partitions:
            stored = found[partition]
            wrong["lost"] += len(set(producer.accepted) - set(stored))
            wrong["doubled"] += len(stored) - len(set(stored))
            wrong["reordered"] += stored != sorted(stored)
    return wrong


def resident_mb(broker: BrokerProcess) -> float:
    return int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1]) * 4096 / 2**20


async def watch(broker: BrokerProcess, peak: list[float]) -> None:
    while True:
        peak[0] = max(peak[0], resident_mb(broker))
        await asyncio.sleep(0.1)


async def busy(
    database: asyncpg.Connection, broker: BrokerProcess, producers: list[Producer], callers: int, *, seconds: float
) -> tuple[float, Run]:
    """Messages that were stored a second while so many push as fast as they are answered."""
    before = await count(database)
    run = await load(broker.url, producers, seconds=seconds, callers=callers)
    stored = await count(database) - before
    await acked(database, broker.url)
    return stored / run.seconds, run


async def most(
    database: asyncpg.Connection, broker: BrokerProcess, producers: list[Producer], *, seconds: float
) -> tuple[float, Run]:
    """The most that any number of callers got stored a second."""
    found = [await busy(database, broker, producers, callers, seconds=seconds) for callers in BUSY_CALLERS]
    return max(found, key=lambda one: one[0])


async def offer(
    database: asyncpg.Connection, broker: BrokerProcess, producers: list[Producer], *, seconds: float, rate: float
) -> tuple[float, Run]:
    """Messages that were stored a second while so many were offered, and until nothing waited any more."""
    before, began = await count(database), time.perf_counter()
    run = await load(broker.url, producers, seconds=seconds, rate=rate)
    await acked(database, broker.url)
    return (await count(database) - before) / (time.perf_counter() - began), run


async def freeze(broker: BrokerProcess, server: PostgresServer, producers: list[Producer]) -> tuple[Run, float, float]:
    """Producers across a freeze of the store; when it began and ended."""
    pushing = asyncio.create_task(
        load(broker.url, producers, seconds=FROST_SECONDS + 2 * CALM_SECONDS, rate=FROST_RATE)
    )
    await asyncio.sleep(CALM_SECONDS)
    with frozen(server):
        began = time.perf_counter()
        await asyncio.sleep(FROST_SECONDS)
        ended = time.perf_counter()
    return await pushing, began, ended


def _spread(run: Run) -> str:
    return f"{percentile(0.5, run.answers):.0f} / {percentile(0.99, run.answers):.0f}"


async def measure(
    broker: BrokerProcess, server: PostgresServer, url: str, *, seconds: float
) -> tuple[list[tuple[str, str]], list[Target]]:
    """What was found, and what of it has a target."""
    database = await asyncpg.connect(url)
    peak = [0.0]
    watching = asyncio.create_task(watch(broker, peak))
    many = [
        Producer(QUEUE, [f"{number}-{partition}" for partition in range(PARTITIONS)]) for number in range(PRODUCERS)
    ]
    flood = [
        Producer(QUEUE, [f"flood-{number}-{partition}" for partition in range(FLOOD_PARTITIONS)])
        for number in range(FLOOD_PRODUCERS)
    ]
    few = [Producer(QUEUE, [f"frost-{number}"]) for number in range(FROST_PRODUCERS)]
    try:
        await load(broker.url, many, seconds=2, rate=20_000)  # every partition is made
        await load(broker.url, many, seconds=1, callers=BUSY_CALLERS[-1])
        await acked(database, broker.url)
        first, base = await most(database, broker, many, seconds=seconds / 4)
        calm_mb = resident_mb(broker)
        goodput, over = await offer(database, broker, many, seconds=seconds, rate=3 * first)
        await load(broker.url, flood, seconds=FLOOD_PRODUCERS * BATCH / 20_000, rate=20_000)
        await acked(database, broker.url)
        flooded, open_flood = await offer(database, broker, flood, seconds=seconds, rate=3 * first)
        last, _ = await most(database, broker, many, seconds=seconds / 4)
        sustainable = (first + last) / 2
        frost, froze_at, thawed_at = await freeze(broker, server, few)
        await acked(database, broker.url)
        wrong = await faults(database, many + flood + few)
    finally:
        watching.cancel()
        await database.close()
    cold = [one for one in frost.answers if froze_at <= one.ended < thawed_at and one.kind.startswith("202")]
    found_out_at = min((one.ended for one in cold), default=thawed_at)
    rows = [
        ("sustainable, messages/s", f"{first:,.0f} before, {last:,.0f} after"),
        ("answers at that rate", str(base.counts())),
        ("offered, of what was before", f"{len(over.answers) * BATCH / over.seconds / first:.2f}"),
        ("the load's own delay, p99, ms", f"{over.late_ms(0.99):.0f}"),
        ("p50 and p99 of answers at 3 x, ms", _spread(over)),
        ("answers at 3 x", str(over.counts())),
        ("goodput of an open flood, of it", f"{flooded / sustainable:.2f}"),
        ("p50 and p99 of its answers, ms", _spread(open_flood)),
        ("answers to the flood", str(open_flood.counts())),
        ("answers around the freeze", str(frost.counts())),
        ("freeze found out after, ms", f"{(found_out_at - froze_at) * 1e3:.0f}"),
        ("p50 and longest of 202s while frozen, ms", f"{percentile(0.5, cold):.0f} / {percentile(1.0, cold):.0f}"),
        ("memory, before and peak, MB", f"{calm_mb:.0f} / {peak[0]:.0f}"),
        ("lost, doubled, reordered", str([wrong[k] for k in ("lost", "doubled", "reordered")])),
    ]
    refused = over.counts().get("429", 0)
    targets = [
        Target("overload: goodput at 3 x", SYSTEM, goodput / sustainable, 0.8, "x", basis="of what is sustainable"),
        Target("overload: refused of those who wait", SYSTEM, refused, 0, at_most=True),
        Target("overload: 202s while frozen, p99", SYSTEM, percentile(0.99, cold), 50, " ms", at_most=True),
        Target("overload: memory", SYSTEM, peak[0] - calm_mb, 512, " MB", at_most=True, basis="more than before"),
        Target("overload: lost, doubled, reordered", SYSTEM, wrong.total(), 0, at_most=True),
    ]
    return rows, targets


async def run(*, seconds: float) -> tuple[list[tuple[str, str]], list[Target]]:
    """On a server and a broker of its own."""
    with running_server(18) as server, broker_process(server.url()) as broker:
        return await measure(broker, server, server.url(), seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the time")
    quick = parser.parse_args().quick
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        rows, targets = runner.run(run(seconds=5 if quick else 20))
    for name, value in rows:
        print(f"{name:42} {value}")
    console = Console(highlight=False)
    for target in targets:
        console.print(f"{target.label:42} {target.measured:12} {target.verdict}")
    sys.exit(0 if all(target.holds for target in targets) else 1)


if __name__ == "__main__":
    main()
