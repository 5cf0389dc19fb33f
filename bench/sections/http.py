"""A broker process over HTTP, driven by wrk, beside the HTTP ceiling, bare database drivers and Queen MQ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench import bare_drivers, recorded
from bench.ceiling import ceiling_process
from bench.load import BATCH, PARTITIONS, Load
from bench.results import Comparison, Measurement, Results, quotient
from bench.suite import STORES, Section, Suite, ours
from bench.systems import Running
from bench.workloads import GROUP, backlog
from bench.wrk import CONNECTIONS, measured, pop_load, pop_path, push_bodies, push_load

CEILING = "HTTP ceiling"
BARE = {"postgres": "bare asyncpg", "sqlite": "bare apsw"}
AUTO = "auto"
"""The group of pops with auto-ack. Both groups drain the same backlog."""
IDLE = "push 1, one connection"


class Workload(NamedTuple):
    """A request: a push of `batch` messages to `spread` partitions, or the pop with this path.

    For a pop, `spread` is to how many partitions each hundred messages of the backlog were pushed.
    """

    label: str
    batch: int = BATCH
    spread: int = 1
    pop: str = ""
    ack: bool = False


PUSH_1 = Workload("push 1", 1)
PUSH_SPREAD = Workload("push 100 over 100 partitions", spread=PARTITIONS)
PUSHES = (PUSH_1, Workload("push 10 to one partition", 10), Workload("push 100 to one partition"), PUSH_SPREAD)
_AUTO_ACK, _ACK = pop_path(BATCH, group=AUTO, more="&autoAck=true"), pop_path(BATCH, group=GROUP)
POP_ACK = Workload("pop 100 + ack", pop=_ACK, ack=True)
POPS = (Workload("pop 100, auto-ack", pop=_AUTO_ACK), POP_ACK)
SPREAD_POPS = (
    Workload("pop 100, auto-ack, pushed over 100 partitions", spread=PARTITIONS, pop=_AUTO_ACK),
    Workload("pop 100 + ack, pushed over 100 partitions", spread=PARTITIONS, pop=_ACK, ack=True),
)


async def run(suite: Suite) -> Results:
    results = Results()
    for number in range(suite.scale.rounds):
        await suite.turn(f"http, round {number + 1}: limits")
        await ceiling(suite, results)
        for kind in STORES:
            await bare_driver(suite, kind, results)
        for workload in PUSHES:
            for kind in STORES:
                await suite.turn(f"http, round {number + 1}: {workload.label}, {kind}")
                await pushes(suite, kind, workload, results)
        for workloads in (POPS, SPREAD_POPS):
            for kind in STORES:
                await suite.turn(f"http, round {number + 1}: {workloads[0].label}, {kind}")
                await pops(suite, kind, workloads, results)
    for label, measurement in recorded.QUEEN.items():
        results.add(label, f"{recorded.NAME}, recorded", measurement)
    for kind in STORES:
        results.comparisons += comparisons(results, kind)
    results.notes.append(recorded.CONDITIONS)
    return results


async def ceiling(suite: Suite, results: Results) -> None:
    with ceiling_process() as (url, pid):
        for workload in (*PUSHES, *POPS):
            results.add(workload.label, CEILING, await drive(suite, Running(url, (pid,)), workload, seconds=1))


async def bare_driver(suite: Suite, kind: str, results: Results) -> None:
    """Push and pop rows with the bare driver. The pop fills its table first, so the CPU of its store is unknown."""
    server = suite.server if kind == "postgres" else None
    async with suite.store(kind) as url:
        meter = suite.meter(Running("", (), (server.pid,) if server else (), server))
        await meter.begin()
        rate = await bare_drivers.push(url, Load(suite.scale.seconds, 5_000_000))
        await meter.end()
    cost = meter.cost(rate.items)._replace(rate=rate.per_second, client_us=rate.cpu_us)
    results.add(PUSH_SPREAD.label, BARE[kind], cost)
    async with suite.store(kind) as url:
        rate = await bare_drivers.pop_ack(url, Load(suite.scale.seconds, suite.scale.backlog // 5))
    results.add(POP_ACK.label, BARE[kind], Measurement(rate=rate.per_second, client_us=rate.cpu_us))


async def drive(
    suite: Suite, running: Running, workload: Workload, *, seconds: int, connections: int = CONNECTIONS
) -> Measurement:
    if workload.pop:
        load = pop_load(running.url, workload.pop, ack=workload.ack, seconds=seconds, connections=connections)
    else:
        bodies = push_bodies(workload.batch, workload.spread)
        load = push_load(running.url, bodies, seconds=seconds, connections=connections)
    return await measured(suite.meter(running), load)


async def pushes(suite: Suite, kind: str, workload: Workload, results: Results) -> None:
    async with suite.store(kind) as url, suite.broker(kind, url) as running:
        # Create the queue and its partitions first, as in a broker that has been in use.
        await drive(suite, running, workload, seconds=1, connections=1)
        if workload is PUSH_1:
            results.add(IDLE, ours(kind), await drive(suite, running, workload, seconds=1, connections=1))
        results.add(workload.label, ours(kind), await drive(suite, running, workload, seconds=suite.scale.seconds))


async def pops(suite: Suite, kind: str, workloads: Sequence[Workload], results: Results) -> None:
    """Drain the same backlog with one group after the other."""
    async with suite.store(kind) as url:
        await backlog(url, suite.scale.backlog, groups=(AUTO, GROUP), spread=workloads[0].spread)
        async with suite.broker(kind, url) as running:
            for workload in workloads:
                measurement = await drive(suite, running, workload, seconds=10 * suite.scale.seconds)
                results.add(workload.label, ours(kind), measurement)


def comparisons(results: Results, kind: str) -> list[Comparison]:
    system = ours(kind)
    made = []
    for label, queen in recorded.QUEEN.items():
        less = quotient(queen.servers_us, results.median(label, system, "servers_us"))
        made.append(Comparison(label, system, less, f"times less CPU than {recorded.NAME}"))
        share = results.ratio((label, system), (label, CEILING))
        made.append(Comparison(label, system, share, "rate of the HTTP ceiling"))
    for label in (PUSH_SPREAD.label, POP_ACK.label):
        share = results.ratio((label, system), (label, BARE[kind]))
        made.append(Comparison(label, system, share, f"rate of {BARE[kind]}, one row per message"))
    return made


HTTP = Section(
    "http",
    "HTTP",
    f"wrk on the same machine, {CONNECTIONS} connections, 98-byte payloads, 100 partitions, deduplication for a day, "
    "durable answers. The client is wrk. Pops drain one backlog, first with auto-ack, then with acks. The backlog was "
    "pushed in batches of 100 to one partition each, unless the workload says otherwise. The HTTP ceiling is the same "
    "server with a handler that only decodes and answers. The bare drivers keep one row per message in a table with "
    "the same order and durability, in the process that drives them, with 4 connections (SQLite: 1).",
    run,
)
