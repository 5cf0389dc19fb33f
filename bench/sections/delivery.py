"""Unordered queues whose messages fail, and webhooks under a flood."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from bench import delivery_workloads
from bench.delivery import UNORDERED_RATIO_MIN
from bench.figures import Findings, Run, Target
from bench.hooks import flood, hooked, written
from bench.load import Load
from bench.meter import Meter
from bench.suite import STORES, Section, Suite, ours
from bench.systems import running_broker

ORDERED = "pop 100 + ack, ordered, none fails"
UNORDERED = "pop 100 + ack, unordered, 1 % fail once"
HOOKS = "webhooks, 64 connections, until a consumer has them"
VISIBLE_MS_MAX = 100.0


async def run(suite: Suite) -> Findings:
    found = Findings()
    load = Load(64, 30, max(9_000, suite.scale.backlog // 4))
    for number in range(suite.scale.rounds):
        for kind in STORES:
            suite.say(f"delivery, round {number + 1}: {kind}")
            for workload, measure in (
                (ORDERED, delivery_workloads.ordered_pop_100_ack_read),
                (UNORDERED, delivery_workloads.unordered_pop_100_ack_fail),
            ):
                async with suite.store(kind) as url:
                    found.add(workload, ours(kind), Run(rate=(await measure(url, load)).per_second))
            found.add(HOOKS, ours(kind), await webhooks(suite, kind), unit="webhooks")
    for kind in STORES:
        share = found.ratio((UNORDERED, ours(kind)), (ORDERED, ours(kind)))
        late = found.median(HOOKS, ours(kind), "p99")
        basis = f"p99 under {suite.scale.hooks:,} webhooks from 64 connections"
        found.targets += [
            Target("unordered pop + ack, 1 % fail", ours(kind), share, UNORDERED_RATIO_MIN, "x", basis="of ordered"),
            Target("webhook in a consumer's hands", ours(kind), late, VISIBLE_MS_MAX, " ms", at_most=True, basis=basis),
        ]
    return found


async def webhooks(suite: Suite, kind: str) -> Run:
    """The times are those from the sending of a webhook until a consumer has it."""
    with TemporaryDirectory(dir=suite.directory) as name:
        directory = Path(name)
        _, hooks = written(directory)
        async with suite.store(kind) as url, hooked(url, directory) as broker:
            await flood(broker.url, hooks, suite.scale.hooks // 10)  # partitions are there, as in a broker at work
            meter: Meter = suite.meter(running_broker(broker, suite.server if kind == "postgres" else None))
            await meter.begin()
            shot, seen = await flood(broker.url, hooks, suite.scale.hooks)
            await meter.end()
    seen.sort()
    p50, p99, p999 = (1e3 * seen[min(len(seen) - 1, int(share * len(seen)))] for share in (0.5, 0.99, 0.999))
    return meter.cost(len(seen))._replace(rate=shot.requests / shot.seconds, p50=p50, p99=p99, p999=p999)


DELIVERY = Section(
    "delivery",
    "Delivery",
    "The first two in process, 64 callers that look at each message and each outcome, 98-byte payloads. Webhooks are "
    "signed and typed, each verified and deduplicated by its delivery id, sent by wrk as fast as they are answered "
    "while one consumer waits for them; times are those from the sending until the consumer has the message.",
    run,
)
