"""What takes minutes: retention beside pushes, a snapshot that stays open, overload and a frozen store."""

from __future__ import annotations

from bench import delivery, delivery_workloads, endurance, overload
from bench.core import PINNED_RATIO_MIN
from bench.figures import Findings, Run, Target
from bench.suite import Section, Suite, ours

PINNED_SECONDS = 60.0
POSTGRES = ours("postgres")
ALONE = "push 100 a hundred times a second"
BESIDE = f"{ALONE}, beside retention"
DELETED = "messages deleted by retention"


async def run(suite: Suite) -> Findings:
    found = Findings()
    for number in range(suite.scale.rounds):
        suite.say(f"long, round {number + 1}: retention")
        await retention(suite, found)
    rise = found.ratio((BESIDE, POSTGRES), (ALONE, POSTGRES), "p99")
    rate = found.median(DELETED, POSTGRES)
    found.targets += [
        Target("retention deletes", POSTGRES, rate, delivery.RETENTION_RATE_MIN, "/s"),
        Target(
            "p99 of a push beside it", POSTGRES, rise, delivery.PUSH_P99_RISE_MAX, "x", at_most=True, basis="of alone"
        ),
    ]
    suite.say("long: pinned snapshot")
    await pinned(suite, found)
    suite.say("long: overload")
    rows, targets = await overload.run(seconds=2 if suite.quick else 20)
    found.targets += targets
    found.notes += [f"Overload, {name}: {value}." for name, value in rows]
    return found


async def retention(suite: Suite, found: Findings) -> None:
    messages = 100_000 if suite.quick else delivery.RETAINED_MESSAGES
    async with suite.store("postgres") as url:
        retained = await delivery_workloads.retention(url, messages=messages)
    found.add(DELETED, POSTGRES, Run(rate=retained.rate.per_second))
    found.add(ALONE, POSTGRES, Run(p99=retained.alone_ms))
    found.add(BESIDE, POSTGRES, Run(p99=retained.beside_ms))


async def pinned(suite: Suite, found: Findings) -> None:
    """The rounds are the fifths of the load."""
    seconds = 5.0 if suite.quick else PINNED_SECONDS
    async with suite.store("postgres") as url, suite.store("postgres") as beside:
        pairs = await endurance.pinned(url, beside, seconds=seconds, tasks=64)
    for held, free in pairs:
        found.add("pop + ack beside pushes, a transaction open", POSTGRES, Run(rate=held.loaded))
        found.add("pop + ack beside pushes, none open", POSTGRES, Run(rate=free.loaded))
    lowest = min(min(pair.ratios) for pair in pairs)
    basis = f"the lowest of what it is without, under {seconds:.0f} s of load"
    found.targets.append(Target("pop + ack, a transaction open", POSTGRES, lowest, PINNED_RATIO_MIN, "x", basis=basis))


LONG = Section(
    "long",
    "Long runs",
    "PostgreSQL. Retention and the open transaction in process, 98-byte payloads over 100 partitions; overload over "
    "HTTP, by producers that own their partitions, with three times what the store takes, then with a frozen store.",
    run,
    full=True,
)
