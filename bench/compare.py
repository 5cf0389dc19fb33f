"""Measure Fairlane beside what a Python team would pick instead: the same messages, Python clients, durable answers.

    python bench/compare.py                        every system, three interleaved rounds
    python bench/compare.py --only push --quick
    python bench/compare.py --json build/compare.json --markdown build/compare.md

Each system is started by this script on an empty directory, warmed up, measured and stopped, one after the other in
each round, so that what else the machine does hits all of them. The client is a process of its own. Beside rates, which
belong to the machine, the table has what is stable on a noisy one: microseconds of CPU per message of client and
servers, bytes written to disk per message, memory at its peak.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

sys.path.pop(0)  # this directory: its http.py is not the one of Python
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table

from bench.load import BATCH, PAYLOAD
from bench.postgres import MAJORS, PostgresServer, running, settings_in_force
from bench.report import print_machine
from bench.systems import SYSTEMS, System, directory_below
from bench.usage import difference, usage_of

QUIET_LOAD = 0.5


class Workload(NamedTuple):
    name: str
    tasks: int
    label: str


WORKLOADS = (
    Workload("push", 64, "one message per call, 64 callers"),
    Workload("push_batch", 8, f"batches of {BATCH}, 8 callers"),
    Workload("consume", 8, f"take and finish {BATCH} at a time, 8 callers"),
    Workload("both", 16, f"in and out at once, batches of {BATCH}, 8 producers and 8 consumers"),
)


class Result(NamedTuple):
    """One run. `servers` is microseconds of CPU per message of broker and store."""

    version: str
    rate: float
    client: float
    servers: float
    written: float
    peak: int
    p50: float
    p99: float
    p999: float


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[one.name for one in WORKLOADS], help="this workload")
    parser.add_argument("--system", help="only those whose name has this text")
    parser.add_argument("--rounds", type=int, help="how often each run is repeated (3)")
    parser.add_argument("--seconds", type=float, help="of each run (4)")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run, not how fast")
    parser.add_argument("--postgres", type=int, choices=MAJORS, default=max(MAJORS), help="version of the server")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    parser.add_argument("--json", type=Path, help="write all results here")
    parser.add_argument("--markdown", type=Path, help="write the tables here")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    chosen.seconds = chosen.seconds or (0.5 if chosen.quick else 4.0)
    return chosen


async def measure(system: System, workload: Workload, seconds: float, base: Path, server: PostgresServer) -> Result:
    program = Path(__file__).with_name("peers") / f"{system.program}.py"
    with directory_below(base) as directory:
        async with system.opened(directory, server) as running_system:
            client = await asyncio.create_subprocess_exec(
                *(system.python, program, running_system.url, workload.name, str(workload.tasks), str(seconds)),
                str(BATCH),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write(PAYLOAD + b"\n")
            marks = []
            said = b""
            async for said in client.stdout:
                if said in (b"begin\n", b"end\n"):
                    marks.append(usage_of(running_system.pids))
                    if len(marks) == 2:
                        client.stdin.write(b"\n")
            if await client.wait() or len(marks) != 2:
                raise SystemExit(f"{system.name}: its client ended with {client.returncode}")
    answer: dict[str, Any] = json.loads(said)
    used = difference(*marks)
    items = max(1, answer["items"])
    return Result(
        version=answer["version"],
        rate=answer["items"] / answer["seconds"],
        client=answer["cpu"],
        servers=used.cpu_seconds / items * 1e6,
        written=used.written_bytes / items,
        peak=used.peak_bytes,
        p50=answer["p50"],
        p99=answer["p99"],
        p999=answer["p99.9"],
    )


HEADS = (
    "system",
    "messages/s",
    "rounds",
    "CPU us client + servers",
    "bytes written",
    "p50 / p99 / p99.9 ms",
    "peak MB",
)


def row_of(system: System, results: list[Result]) -> list[str]:
    def median(name: str) -> float:
        return statistics.median(getattr(one, name) for one in results)

    rates = [one.rate for one in results]
    return [
        f"{system.name} {results[0].version}" + (f" ({system.note})" if system.note else ""),
        f"{median('rate'):,.0f}",
        f"{min(rates):,.0f} to {max(rates):,.0f}",
        f"{median('client'):.1f} + {median('servers'):.1f}",
        f"{median('written'):,.0f}",
        " / ".join(f"{median(name) * 1000:.1f}" for name in ("p50", "p99", "p999")),
        f"{median('peak') / 1e6:,.0f}",
    ]


async def main() -> None:
    chosen = arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 170)
    systems = [one for one in SYSTEMS if chosen.system is None or chosen.system.lower() in one.name.lower()]
    for system in [one for one in systems if one.needs and not _is_there(one.needs)]:
        console.print(f"{system.name} is left out: there is no {system.needs}; make bench-peers installs it")
        systems.remove(system)
    workloads = [one for one in WORKLOADS if chosen.only in (None, one.name)]
    busy = os.getloadavg()[0]
    results: dict[tuple[str, str], list[Result]] = {}
    with ExitStack() as stack:
        server = stack.enter_context(running(chosen.directory, major=chosen.postgres))
        print_machine(console, chosen.directory, await settings_in_force(server))
        if busy > QUIET_LOAD:
            console.print(f"The machine is not quiet: its load was {busy:.1f} before this began.")
        for workload in workloads:
            for number in range(chosen.rounds):
                for system in systems:
                    if sys.stdout.isatty():
                        console.print(f"{workload.label}, round {number + 1}: {system.name:40}", end="\r")
                    result = await measure(system, workload, chosen.seconds, chosen.directory, server)
                    results.setdefault((workload.name, system.name), []).append(result)
            table = Table(*HEADS, title=workload.label, title_justify="left")
            for system in systems:
                table.add_row(*row_of(system, results[workload.name, system.name]))
            console.print(table)
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        found = [
            {"workload": workload, "system": system, "rounds": [one._asdict() for one in rounds]}
            for (workload, system), rounds in results.items()
        ]
        chosen.json.write_text(json.dumps({"load_before": busy, "results": found}, indent=1))
    if chosen.markdown:
        chosen.markdown.parent.mkdir(parents=True, exist_ok=True)
        chosen.markdown.write_text("\n\n".join(_markdown(one, systems, results) for one in workloads) + "\n")


def _markdown(workload: Workload, systems: list[System], results: dict[tuple[str, str], list[Result]]) -> str:
    rows = [HEADS, ["---"] * len(HEADS), *(row_of(one, results[workload.name, one.name]) for one in systems)]
    return f"### {workload.label}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _is_there(program: str) -> bool:
    return any(Path(where, program).exists() for where in os.get_exec_path()) or Path(program).exists()


if __name__ == "__main__":
    asyncio.run(main())
