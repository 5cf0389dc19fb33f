"""Fairlane beside what a Python team would pick instead: the same messages, Python clients, durable answers.

Each system is started on an empty directory, one after the other in each round, so that what else the machine does hits
all of them. The client is a process of its own for each workload, with a queue of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

from bench.figures import Findings, Run, Target
from bench.load import BATCH, PAYLOAD
from bench.suite import Section, Suite
from bench.systems import SYSTEMS, Running, System, directory_below, is_there

PEERS = Path(__file__).parents[1] / "peers"
REDIS = "Redis Streams"
BOTH_EACH_WAY_MIN, BOTH_EACH_WAY_AIM = 62_000, 100_000
WIDE_PAYLOAD = b'{"note":"%b"}' % (b"x" * 245)
assert len(WIDE_PAYLOAD) == 256, len(WIDE_PAYLOAD)


class Workload(NamedTuple):
    """`times` is how many times Redis' rate to reach, `aim` what would be better."""

    name: str
    tasks: int
    label: str
    payload: bytes = PAYLOAD
    times: float | None = None
    aim: float | None = None


WORKLOADS = (
    Workload("push", 64, "one message per call, 64 tasks", times=1.2, aim=2),
    Workload("push_batch", 8, f"batches of {BATCH}, 8 tasks", times=2),
    Workload("consume", 8, f"consume + ack {BATCH} at a time, 8 tasks", times=1.2),
    Workload("both", 16, f"in and out at once, 256 B, batches of {BATCH}, 8 + 8 tasks", WIDE_PAYLOAD),
)


async def run(suite: Suite) -> Findings:
    found = Findings()
    systems = [one for one in SYSTEMS if one.python.exists() and (not one.needs or is_there(one.needs))]
    for system in SYSTEMS:
        if system not in systems:
            missing = system.needs or system.python.relative_to(Path.cwd())
            found.notes.append(
                f"{system.name} IS LEFT OUT: there is no {missing} here; `make bench-peers` installs it."
            )
    shown = {one.name: one.name + (" (NOT EQUAL, see below)" if "NOT EQUAL" in one.note else "") for one in systems}
    versions: dict[str, str] = {}
    for number in range(suite.scale.rounds):
        for system in systems:
            suite.say(f"clients, round {number + 1}: {system.name}")
            with directory_below(suite.directory) as directory:
                async with system.opened(directory, suite.server) as running:
                    for workload in WORKLOADS:
                        versions[system.name], run = await measure(suite, system, workload, running)
                        found.add(workload.label, shown[system.name], run)
    found.notes += [f"{one.name} {versions[one.name]}: {one.note}." for one in systems if one.note]
    for system in [one for one in SYSTEMS if one.name.startswith("Fairlane")]:
        found.targets += targets(found, system.name)
    return found


async def measure(suite: Suite, system: System, workload: Workload, running: Running) -> tuple[str, Run]:
    """Its version, and what one run found."""
    seconds = 0.5 if suite.quick else suite.scale.seconds
    client = await asyncio.create_subprocess_exec(
        *(system.python, PEERS / f"{system.program}.py", running.url, f"bench_{workload.name}", workload.name),
        *(str(workload.tasks), str(seconds), str(BATCH)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(workload.payload + b"\n")
    meter = suite.meter(running)
    said = b""
    async for said in client.stdout:
        if said == b"begin\n":
            await meter.begin()
            client.stdin.write(b"\n")
        elif said == b"end\n":
            await meter.end()
            client.stdin.write(b"\n")
    if await client.wait():
        raise SystemExit(f"{system.name}: its client ended with {client.returncode}")
    answer: dict[str, Any] = json.loads(said)
    return answer["version"], meter.cost(answer["items"])._replace(
        rate=answer["items"] / answer["seconds"],
        client_us=answer["cpu"],
        p50=answer["p50"] * 1e3,
        p99=answer["p99"] * 1e3,
        p999=answer["p99.9"] * 1e3,
    )


def targets(found: Findings, system: str) -> list[Target]:
    made = []
    for workload in WORKLOADS:
        if workload.times is not None:
            value = found.ratio((workload.label, system), (workload.label, REDIS))
            basis = f"rate, by that of {REDIS}"
            made.append(Target(workload.label, system, value, workload.times, "x", aim=workload.aim, basis=basis))
        else:
            value = found.median(workload.label, system)
            aim = BOTH_EACH_WAY_AIM
            made.append(
                Target(
                    workload.label,
                    system,
                    value,
                    BOTH_EACH_WAY_MIN,
                    "/s",
                    aim=aim,
                    basis="each way, by the slower of both",
                )
            )
    return made


CLIENTS = Section(
    "clients",
    "Python clients",
    "One Python process (uvloop) as client, each system started alone. What is answered is on disk: Redis with "
    "appendfsync always, NATS with sync_interval always where its version has that, RabbitMQ with confirms of a "
    "quorum queue, PostgreSQL and SQLite with synchronous commits. 98-byte payloads unless it says otherwise. Fairlane "
    "spreads over 200 partitions (with one message per call 64) and keeps order in each; in and out at once each of "
    "its messages has an id of its producer's, known for a day. Consumers look at each payload. Times are those of "
    "one call.",
    run,
)
