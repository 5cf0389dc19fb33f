"""The engine in process, without HTTP. Use it with `--against` to compare two checkouts."""

from __future__ import annotations

from bench import workloads
from bench.load import Load, Workload
from bench.results import Measurement, Results
from bench.suite import STORES, Section, Suite, ours

PUSHES: dict[str, Workload] = {
    "push 1": workloads.push_1,
    "push 100 over 100 partitions": workloads.push_100,
    "push 100, ids of the caller": workloads.push_100_ids,
}
POPS: dict[str, Workload] = {
    "pop 100 + ack": workloads.pop_100_ack,
    "pop 100 + ack, each read": workloads.pop_100_ack_read,
    "pop 100, auto-ack": workloads.pop_100_auto_ack,
    "pop 100 + ack, over 100 partitions": workloads.pop_100_partitions,
}
SLOW_TO_FILL: dict[str, Workload] = {
    "pop 100 + ack, one message per segment": workloads.pop_100_ack_thin,
    "pop 100 + ack, one message per partition": workloads.pop_many_partitions,
}
MESSAGES_MAX = 5_000_000


async def run(suite: Suite) -> Results:
    results = Results()
    seconds, quick = suite.scale.seconds, suite.quick
    loads = [(label, workload, Load(seconds, MESSAGES_MAX)) for label, workload in PUSHES.items()]
    pops = Load(2 * seconds, 9_000 if quick else suite.scale.backlog)
    loads += [(label, workload, pops) for label, workload in POPS.items()]
    pops = Load(2 * seconds, 9_000 if quick else 90_000)
    loads += [(label, workload, pops) for label, workload in SLOW_TO_FILL.items()]
    for number in range(suite.scale.rounds):
        for kind in STORES:
            for label, workload, load in loads:
                await suite.turn(f"core, round {number + 1}: {label}, {kind}")
                async with suite.store(kind) as url:
                    rate = await workload(url, load)
                results.add(label, ours(kind), Measurement(rate=rate.per_second, broker_us=rate.cpu_us))
    return results


CORE = Section(
    "core",
    "Engine",
    "The broker in the process that calls it, 64 concurrent callers, 98-byte payloads, 100 partitions, durable "
    "answers. Pops drain a backlog that 16 producers pushed, unless the workload says otherwise.",
    run,
)
