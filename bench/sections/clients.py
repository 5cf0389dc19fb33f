"""Fairlane beside the systems that a Python team would choose instead: Python clients and durable answers.

The systems take turns in each round. Each workload has its own client process and its own queue.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.load import BATCH, PAYLOAD
from bench.machine import ROOT
from bench.results import Measurement, Results
from bench.suite import STORES, Section, Suite, ours
from bench.systems import SYSTEMS, Running, System, directory_below, is_installed

PEERS = Path(__file__).parents[1] / "peers"
FAIRLANE = tuple(map(ours, STORES))
WIDE_PAYLOAD = b'{"note":"%b"}' % (b"x" * 245)
assert len(WIDE_PAYLOAD) == 256, len(WIDE_PAYLOAD)


class Workload(NamedTuple):
    """`name` is what the client program calls it."""

    name: str
    tasks: int
    label: str
    payload: bytes = PAYLOAD
    share: float = 1.0
    """Share of the seconds of a run, less than 1 for a section of many short measurements."""


WORKLOADS = (
    Workload("push", 64, "one message per call, 64 tasks"),
    Workload("push_batch", 8, f"batches of {BATCH}, 8 tasks"),
    Workload("consume", 8, f"consume and ack {BATCH}, 8 tasks"),
    Workload("both", 16, f"push and consume 256 B, batches of {BATCH}, 8 + 8 tasks", WIDE_PAYLOAD),
)


async def run(suite: Suite) -> Results:
    results = await compared(suite, "clients", SYSTEMS, WORKLOADS)
    for workload in WORKLOADS:
        for system in SYSTEMS[len(FAIRLANE) :]:
            results.compare(workload.label, FAIRLANE, shown(system))
    return results


async def compared(suite: Suite, section: str, systems: Sequence[System], workloads: Sequence[Workload]) -> Results:
    """Measure every workload on every system, in interleaved rounds."""
    results = Results()
    installed = []
    for system in systems:
        missing = [str(one) for one in (system.needs, system.python) if one and not is_installed(str(one))]
        if missing:
            name = missing[0].removeprefix(f"{ROOT}/")
            results.notes.append(f"{system.name} is LEFT OUT: {name} is missing; `make bench-peers` installs it.")
        else:
            installed.append(system)
    versions: dict[str, str] = {}
    for number in range(suite.scale.rounds):
        for system in installed:
            await suite.turn(f"{section}, round {number + 1}: {system.name}")
            with directory_below(suite.directory) as directory:
                async with system.open(directory, suite.server) as running:
                    for workload in workloads:
                        versions[system.name], measurement = await measure(suite, system, workload, running)
                        results.add(workload.label, shown(system), measurement)
    results.notes += [f"{one.name} {versions[one.name]}: {one.note}." for one in installed if one.note]
    return results


def shown(system: System) -> str:
    """Return the name for the table, with a mark if the system is less durable than the others."""
    return f"{system.name} (NOT EQUAL)" if "NOT EQUAL" in system.note else system.name


async def measure(suite: Suite, system: System, workload: Workload, running: Running) -> tuple[str, Measurement]:
    """Run one client program and return the version of the system and the measurement."""
    seconds = 0.5 if suite.quick else suite.scale.seconds * workload.share
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
    line = b""
    async for line in client.stdout:
        if line == b"begin\n":
            await meter.begin()
            client.stdin.write(b"\n")
        elif line == b"end\n":
            await meter.end()
            client.stdin.write(b"\n")
    if await client.wait():
        raise SystemExit(f"the client of {system.name} ended with exit code {client.returncode}")
    answer: dict[str, Any] = json.loads(line)
    return answer["version"], meter.cost(answer["items"])._replace(
        rate=answer["items"] / answer["seconds"],
        client_us=answer["cpu"],
        p50=answer["p50"] * 1e3,
        p99=answer["p99"] * 1e3,
        p999=answer["p99.9"] * 1e3,
    )


CLIENTS = Section(
    "clients",
    "Python clients",
    "One Python process with uvloop as the client, each system started alone. An answer means that the message is on "
    "disk: Redis with appendfsync always, NATS with sync_interval always where its version has that, RabbitMQ with "
    "confirms of a quorum queue, PostgreSQL and SQLite with synchronous commits. Payloads are 98 bytes unless the "
    "workload says otherwise. Fairlane uses 200 partitions (64 with one message per call) and keeps order in each. "
    "When it pushes and consumes at once, each message has an id of its producer, deduplicated for a day. "
    "Its rate counts the slower direction. Consumers read each payload. Latencies are those of "
    "one call.",
    run,
)
