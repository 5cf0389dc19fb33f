"""A broker process over HTTP, driven by wrk, beside the ceiling: its own server with a handler that only decodes and
answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench import recorded
from bench.ceiling import ceiling_process
from bench.figures import Findings, Run, Target, quotient
from bench.load import BATCH, PARTITIONS
from bench.shots import CONNECTIONS, measured, pop_path, pop_shot, push_bodies, push_shot
from bench.suite import STORES, Section, Suite, ours
from bench.systems import Running
from bench.workloads import GROUP, backlog

CEILING = "ceiling: decodes and answers"
AUTO = "auto"
"""The group of pops that are acked by leaving the broker: both kinds drain one backlog."""
IDLE = "push 1, one connection"
IDLE_MS_MAX = 2.0


class Workload(NamedTuple):
    """Messages of one request over how many partitions, or the pop that is asked for and over how many partitions each
    hundred was pushed. `times` is how much less CPU than Queen's a message is to take, `share` how much of the
    ceiling's rate to reach."""

    label: str
    batch: int = BATCH
    spread: int = 1
    pop: str = ""
    ack: bool = False
    times: float | None = None
    share: float | None = None


PUSHES = (
    Workload("push 1", 1, times=4.5, share=0.45),
    Workload("push 10 to one partition", 10),
    Workload("push 100 to one partition", times=9, share=0.15),
    Workload("push 100 over 100 partitions", spread=PARTITIONS, times=8, share=0.15),
)
_AUTO_ACK, _ACK = pop_path(BATCH, group=AUTO, more="&autoAck=true"), pop_path(BATCH, group=GROUP)
POPS = (
    Workload("pop 100, auto-ack", pop=_AUTO_ACK, times=16),
    Workload("pop 100 + ack", pop=_ACK, ack=True, times=20),
)
THIN_POPS = (
    Workload("pop 100, auto-ack, pushed over 100 partitions", spread=PARTITIONS, pop=_AUTO_ACK),
    Workload("pop 100 + ack, pushed over 100 partitions", spread=PARTITIONS, pop=_ACK, ack=True),
)


async def run(suite: Suite) -> Findings:
    found = Findings()
    for number in range(suite.scale.rounds):
        suite.say(f"http, round {number + 1}: ceiling")
        with ceiling_process() as (url, pid):
            for workload in (*PUSHES, *POPS):
                found.add(workload.label, CEILING, await shot(suite, Running(url, (pid,)), workload, seconds=1))
        for workload in PUSHES:
            for kind in STORES:
                suite.say(f"http, round {number + 1}: {workload.label}, {kind}")
                await pushes(suite, kind, workload, found)
        for workloads in (POPS, THIN_POPS):
            for kind in STORES:
                suite.say(f"http, round {number + 1}: {workloads[0].label}, {kind}")
                await pops(suite, kind, workloads, found)
    for label, one in recorded.QUEEN.items():
        run = Run(rate=one.rate, broker_us=one.broker_us, store_us=one.store_us)
        found.add(label, f"{recorded.NAME}, RECORDED elsewhere", run)
    for kind in STORES:
        found.targets += targets(found, ours(kind))
    idle = found.median(IDLE, ours("sqlite"), "p50")
    found.targets.append(Target("idle push, p50", ours("sqlite"), idle, IDLE_MS_MAX, " ms", at_most=True))
    found.notes.append(recorded.CONDITIONS)
    return found


async def shot(
    suite: Suite, running: Running, workload: Workload, *, seconds: int, connections: int = CONNECTIONS
) -> Run:
    if workload.pop:
        shooting = pop_shot(running.url, workload.pop, ack=workload.ack, seconds=seconds, connections=connections)
    else:
        bodies = push_bodies(workload.batch, workload.spread)
        shooting = push_shot(running.url, bodies, seconds=seconds, connections=connections)
    return await measured(suite.meter(running), shooting)


async def pushes(suite: Suite, kind: str, workload: Workload, found: Findings) -> None:
    async with suite.store(kind) as url, suite.broker(kind, url) as running:
        # Afterwards queue and partitions are there, as in a broker at work.
        await shot(suite, running, workload, seconds=1, connections=1)
        if workload is PUSHES[0]:
            found.add(IDLE, ours(kind), await shot(suite, running, workload, seconds=1, connections=1))
        found.add(workload.label, ours(kind), await shot(suite, running, workload, seconds=suite.scale.seconds))


async def pops(suite: Suite, kind: str, workloads: Sequence[Workload], found: Findings) -> None:
    """One group after the other drains the same backlog."""
    async with suite.store(kind) as url:
        await backlog(url, suite.scale.backlog, groups=(AUTO, GROUP), spread=workloads[0].spread)
        async with suite.broker(kind, url) as running:
            for workload in workloads:
                run = await shot(suite, running, workload, seconds=10 * suite.scale.seconds)
                found.add(workload.label, ours(kind), run)


def targets(found: Findings, system: str) -> list[Target]:
    made = []
    for workload in (*PUSHES, *POPS):
        if workload.times is not None:
            other = recorded.QUEEN[workload.label]
            value = quotient(other.servers_us, found.median(workload.label, system, "servers_us"))
            rates = quotient(found.median(workload.label, system), other.rate)
            by_rate = "" if rates is None else f"; by rate {rates:.1f}"
            basis = f"{other.broker_us:g} + {other.store_us:g} us of {recorded.NAME}, by ours{by_rate}"
            made.append(Target(f"{workload.label}: less CPU", system, value, workload.times, "x", basis=basis))
        if workload.share is not None:
            share = found.ratio((workload.label, system), (workload.label, CEILING))
            made.append(Target(f"{workload.label}: rate", system, share, workload.share, "x", basis="of the ceiling"))
    return made


HTTP = Section(
    "http",
    "HTTP",
    f"wrk on the same machine, {CONNECTIONS} connections, 98-byte payloads, 100 partitions, dedup window of a day, "
    "durable answers; client is wrk, and times are those of one request. Pops drain one backlog, first a group with "
    "auto-ack, then one that acks. It was pushed in hundreds, each to one partition if it does not say otherwise.",
    run,
)
