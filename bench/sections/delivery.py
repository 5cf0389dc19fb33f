"""Scheduled messages, unordered queues whose messages fail, and webhooks."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from bench import workloads
from bench.load import Load
from bench.results import Comparison, Measurement, Results, percentiles
from bench.suite import STORES, Section, Suite, ours
from bench.webhooks import flood, webhook_broker, write_webhooks

PUSH = "push 100, due at once"
SCHEDULE = "push 100, due later"
ORDERED = "pop 100 + ack, ordered, none fails"
UNORDERED = "pop 100 + ack, unordered, 1 % fail once"
WEBHOOKS = "webhook until a consumer has it"


async def run(suite: Suite) -> Results:
    results = Results()
    pushes = Load(suite.scale.seconds, 5_000_000)
    pops = Load(30, max(9_000, suite.scale.backlog // 4))
    in_process = (
        (PUSH, workloads.push_100, pushes),
        (SCHEDULE, workloads.schedule_100, pushes),
        (ORDERED, workloads.pop_100_ack_read, pops),
        (UNORDERED, workloads.pop_unordered_failing, pops),
    )
    for number in range(suite.scale.rounds):
        for kind in STORES:
            for label, workload, load in in_process:
                await suite.turn(f"delivery, round {number + 1}: {label}, {kind}")
                async with suite.store(kind) as url:
                    rate = await workload(url, load)
                results.add(label, ours(kind), Measurement(rate=rate.per_second, broker_us=rate.cpu_us))
            await suite.turn(f"delivery, round {number + 1}: webhooks, {kind}")
            results.add(WEBHOOKS, ours(kind), await webhooks(suite, kind), unit="webhooks")
    for kind in STORES:
        for label, against in ((SCHEDULE, PUSH), (UNORDERED, ORDERED)):
            value = results.ratio((label, ours(kind)), (against, ours(kind)))
            results.comparisons.append(Comparison(label, ours(kind), value, f"rate of: {against}"))
    return results


async def webhooks(suite: Suite, kind: str) -> Measurement:
    with TemporaryDirectory(dir=suite.directory) as name:
        directory = Path(name)
        requests = directory / "webhooks"
        write_webhooks(requests)
        async with suite.store(kind) as url, webhook_broker(url, directory) as broker:
            await flood(broker.url, requests, suite.scale.webhooks // 10)  # creates the partitions
            meter = suite.meter(suite.running(broker, kind))
            await meter.begin()
            result, delivered = await flood(broker.url, requests, suite.scale.webhooks)
            await meter.end()
    p50, p99, p999 = percentiles([1e3 * seconds for seconds in delivered])
    rate = result.requests / result.seconds
    return meter.cost(len(delivered))._replace(rate=rate, p50=p50, p99=p99, p999=p999)


DELIVERY = Section(
    "delivery",
    "Delivery",
    "Pushes and pops run in the process of the broker, with 64 callers and 98-byte payloads. Consumers read each "
    "message and check each result. Webhooks are signed and typed, and deduplicated by their delivery id. wrk sends "
    "them over 64 connections as fast as they are answered, while one consumer waits for them. Their latency is the "
    "time from sending a webhook until the consumer has the message.",
    run,
)
