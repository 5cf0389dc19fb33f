"""What the machine and the databases could do if a broker had nothing else to do."""

from __future__ import annotations

import time

from bench import yardsticks
from bench.figures import Findings, Run
from bench.load import Load
from bench.report import sync_seconds
from bench.suite import STORES, Section, Suite
from bench.systems import Running

DRIVERS = {"postgres": "bare asyncpg", "sqlite": "bare apsw"}
PUSH = "push 100 over 100 partitions, a row each"
POP_ACK = "pop 100 + ack of rows"


async def run(suite: Suite) -> Findings:
    found = Findings()
    load = Load(64, suite.scale.seconds, 5_000_000)
    backlog = Load(64, suite.scale.seconds, suite.scale.backlog // 5)
    for number in range(suite.scale.rounds):
        suite.say(f"limits, round {number + 1}")
        found.add("fdatasync of a 4 KiB append", "the disk", Run(rate=1 / sync_seconds(suite.directory)), unit="calls")
        for kind in STORES:
            server = suite.server if kind == "postgres" else None
            running = Running("", (), (server.pid,) if server else (), server)
            for workload, measure, much in ((PUSH, yardsticks.push, load), (POP_ACK, yardsticks.pop_ack, backlog)):
                async with suite.store(kind) as url:
                    meter = suite.meter(running)
                    await meter.begin()
                    cpu = time.process_time()
                    rate = await measure(url, much)
                    cpu = time.process_time() - cpu
                    await meter.end()
                run = Run(rate=rate.per_second)
                if measure is yardsticks.push:  # the other fills its table first: what that costs is no pop's
                    run = meter.cost(rate.items)._replace(
                        rate=rate.per_second, client_us=cpu / max(1, rate.items) * 1e6
                    )
                found.add(workload, DRIVERS[kind], run)
    return found


LIMITS = Section(
    "limits",
    "Limits",
    "Bare drivers on tables with one row per message, in the process that drives them, 4 connections (SQLite: 1), the "
    "same promises of order and durability. The ceiling of HTTP is in the next table.",
    run,
)
