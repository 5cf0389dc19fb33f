"""Messages enqueued in transactions of the application: beside a plain INSERT, until they are received, and moved."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import nullcontext, suppress
from typing import Any

import asyncpg

from bench.load import PAYLOAD
from bench.results import Comparison, Measurement, Results, percentiles
from bench.suite import Section, Suite, ours
from fairlane import Client

OURS = ours("postgres")
ROLE = "bench_app"
INSERT = "INSERT of the same row"
ALONE = "one in a transaction"
TOGETHER = "100 in a transaction"
RECEIVE = "enqueue until received, idle"
MOVE = "committed at once, until all are moved"
CALLS = 100
PREPARE = f"""
    CREATE TABLE public.outbox (LIKE fairlane.staged INCLUDING ALL);
    ALTER TABLE public.outbox ALTER payload TYPE json USING payload::json;
    GRANT INSERT ON public.outbox TO {ROLE};
"""
PLAIN = """
    INSERT INTO public.outbox (tenant_id, queue, bucket, created_at, partition_name, transaction_id, given, payload)
    VALUES (1, $1, 0, clock_timestamp(), 'Default', '01956d3c-8a5e-7000-8000-000000000000', false, $2)
"""
ENQUEUE_IN = "SELECT fairlane.enqueue($1, $2, partition => $3)"
MANY = """
    SELECT count(fairlane.enqueue('bench', $1, partition => 'lane-' || n % 1000)) FROM generate_series(1, $2::int) n
"""
STATEMENTS = {OURS: "SELECT fairlane.enqueue($1, $2)", INSERT: PLAIN}


async def run(suite: Suite) -> Results:
    results = Results()
    for number in range(suite.scale.rounds):
        await suite.turn(f"enqueue, round {number + 1}")
        async with suite.store("postgres") as url:
            async with suite.broker("postgres", url) as running, Client(running.url) as client:
                await prepare(url, client)
            app = await asyncpg.connect(url.replace("postgres@", f"{ROLE}@", 1))
            await calls(app, suite, results)  # without a broker, whose moves would share the disk with both alike
            async with suite.broker("postgres", url) as running, Client(running.url) as client:
                await until_moved(client)
                results.add(RECEIVE, OURS, await received(app, client, 20 if suite.quick else 200), unit="jobs")
                results.add(MOVE, OURS, await moved(app, client, suite.scale.jobs), unit="jobs")
            await app.close()
    for label in (ALONE, TOGETHER):
        ratio = results.ratio((label, OURS), (label, INSERT))
        results.comparisons.append(Comparison(label, OURS, ratio, f"rate of an {INSERT}"))
    return results


async def prepare(url: str, client: Client) -> None:
    """Make a queue, a role of an application that may enqueue, and a table like that of staged messages."""
    owner = await asyncpg.connect(url)
    with suppress(asyncpg.DuplicateObjectError):  # roles belong to the server, and rounds share it
        await owner.execute(f"CREATE ROLE {ROLE} LOGIN")
    await owner.execute(PREPARE)
    await owner.close()
    await client.staged.grant(ROLE)
    await client.queues.configure("bench")


async def calls(app: Any, suite: Suite, results: Results) -> None:
    """Measure both statements in turns, so that both meet the same disk and the same load."""
    prepared = {system: await app.prepare(statement) for system, statement in STATEMENTS.items()}
    turns = 2 if suite.quick else 30
    for label, one_transaction in ((ALONE, False), (TOGETHER, True)):
        taken = dict.fromkeys(STATEMENTS, 0.0)
        for _ in range(turns):
            for system, statement in prepared.items():
                async with app.transaction() if one_transaction else nullcontext():
                    began = time.perf_counter()
                    for _ in range(CALLS):
                        await statement.fetch("bench", PAYLOAD.decode())
                    taken[system] += time.perf_counter() - began
        for system, seconds in taken.items():
            results.add(label, system, Measurement(rate=CALLS * turns / seconds), unit="calls")


async def received(app: Any, client: Client, count: int) -> Measurement:
    """Measure the time from the call of enqueue until a waiting consumer has the message, one at a time."""
    taken = []
    for number in range(count):
        waiting = asyncio.create_task(client.pop("single", wait=30))
        await asyncio.sleep(random.uniform(0.1, 0.2))  # any moment between two looks of the broker
        began = time.perf_counter()
        await app.execute(ENQUEUE_IN, "single", PAYLOAD.decode(), f"lane-{number}")
        found = await waiting
        taken.append(1e3 * (time.perf_counter() - began))
        await client.ack(found)
    p50, p99, p999 = percentiles(taken)
    return Measurement(p50=p50, p99=p99, p999=p999)


async def moved(app: Any, client: Client, count: int) -> Measurement:
    """Measure the rate at which messages that become visible at once are moved."""
    async with app.transaction():
        await app.execute(MANY, PAYLOAD.decode(), count)
    began = time.perf_counter()
    await until_moved(client)
    return Measurement(rate=count / (time.perf_counter() - began))


async def until_moved(client: Client) -> None:
    while await client.staged.queues():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


ENQUEUE = Section(
    "enqueue",
    "Messages in transactions of an application",
    "An application enqueues jobs of 98 bytes on a connection of asyncpg. It alternates with a plain `INSERT` into a "
    "table with the columns and the key of the staged messages. Then a consumer waits for single jobs, and a broker "
    "moves jobs that were committed together, in 1,000 partitions.",
    run,
)
