"""Other shapes of the load: payloads, partitions, one lane with many consumers, a pipeline of two stages."""

from __future__ import annotations

from bench.figures import Findings, Run
from bench.pipeline import pipeline
from bench.sections.growth import FEW, lanes
from bench.shots import measured, pop_path, pop_shot, push_bodies, push_shot
from bench.suite import STORES, Section, Suite, ours

PAYLOAD_BYTES = {"100 B": 100, "1 KB": 1_000, "64 KB": 64_000}
BATCH = 10
PIPELINE_RATE = 1_000


async def run(suite: Suite) -> Findings:
    found = Findings()
    for kind in STORES:
        await lanes(suite, kind, (1, FEW, min(10_000, suite.scale.lanes)), found)
        for number in range(suite.scale.rounds):
            for name, size in PAYLOAD_BYTES.items():
                suite.say(f"shapes, {kind}, round {number + 1}: {name}")
                await payloads(suite, kind, name, size, found)
            suite.say(f"shapes, {kind}, round {number + 1}: pipeline")
            await staged(suite, kind, found)
    return found


async def payloads(suite: Suite, kind: str, name: str, size: int, found: Findings) -> None:
    payload = b'"%b"' % (b"x" * (size - 2))
    async with suite.store(kind) as url, suite.broker(kind, url) as running:
        bodies = push_bodies(BATCH, 1, payload=payload)
        await push_shot(running.url, bodies, seconds=1, connections=1)
        shooting = push_shot(running.url, bodies, seconds=suite.scale.seconds)
        found.add(f"push {BATCH} of {name}", ours(kind), await measured(suite.meter(running), shooting))
        shooting = pop_shot(running.url, pop_path(BATCH), seconds=suite.scale.seconds)
        found.add(f"pop {BATCH} + ack of {name}", ours(kind), await measured(suite.meter(running), shooting))


async def staged(suite: Suite, kind: str, found: Findings) -> None:
    async with suite.store(kind) as url, suite.broker(kind, url) as running:
        meter = suite.meter(running)
        await pipeline(running.url, rate=PIPELINE_RATE, seconds=1)
        await meter.begin()
        taken = await pipeline(running.url, rate=PIPELINE_RATE, seconds=suite.scale.seconds)
        await meter.end()
    took = sorted(taken.took)
    p50, p99, p999 = (1e3 * took[min(len(took) - 1, int(share * len(took)))] for share in (0.5, 0.99, 0.999))
    run: Run = meter.cost(len(took))._replace(rate=len(took) / taken.seconds, p50=p50, p99=p99, p999=p999)
    found.add(f"two ordered stages, {PIPELINE_RATE:,} offered a second", ours(kind), run)


SHAPES = Section(
    "shapes",
    "Shapes of the load",
    "A broker process, wrk with 64 connections. Of one partition only one consumer has messages at a time; the others "
    "wait. The pipeline is one Python process: messages by the clock over 20 partitions, popped, acked and pushed on "
    "in one transaction, and popped again in their order; times are those from the push to the second consumer.",
    run,
    full=True,
)
