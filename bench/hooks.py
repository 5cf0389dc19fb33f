"""Measure webhooks beside plain pushes of the same broker, and what a mapping costs a message.

    python -m bench.hooks                       both stores
    python -m bench.hooks --store sqlite --quick

A webhook is signed as GitHub signs it, verified, checked against the type of its queue, given the partition that its
key names, and deduplicated by its delivery id. A plain push is one message of the same body in one request. They
take turns on one broker, so that both meet the same disk. A missed target is printed as MISSED and does not change
the exit code: the figures belong to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.postgres import MAJORS, PostgresServer, fresh_database, running, settings_in_force
from bench.report import print_machine, verdict
from bench.spec import rate
from bench.wrk import Shot, shoot
from fairlane import Client
from fairlane.hooks.schemes import PRESETS
from fairlane.hooks.signatures import sign
from fairlane.runtime.process import new_event_loop
from fairlane.spec.check import problems
from fairlane.spec.compile import compile_spec
from fairlane.spec.compiled_queue import CompiledQueue, decoded
from fairlane.spec.text.source import Source
from tests.broker_process import FAIRLANE, BrokerProcess, broker_process

SPEC = """
app Bench {
  queue Incidents {
    message_type {
      payload: { incident: { id: string  title: string  urgency: string } }
      headers: map<string, string>
      source_ip: string
      received_at: time
    }
    key: payload.incident.id
    map_to: command Incident.Create {
      title: payload.incident.title
      severity: payload.incident.urgency == "high" ? "critical" : "high"
      source: "github"
      external_id: payload.incident.id
    }
  }
  queue Plain {}
  command Incident.Create {
    input { title: string  severity: enum("critical", "high")  source: string  external_id: string }
  }
  webhook Alert {
    queue: Incidents
    verify: github { secret_env: "BENCH_HOOK_SECRET" }
    idempotency: header "X-GitHub-Delivery"
  }
}
"""
SECRET = "0123456789abcdef0123456789abcdef"
PARTITIONS = 100
SHARE = 0.6
MAPPED = 50_000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--rounds", type=int, help="how often each run is repeated (3)")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="one short round: does it run, not how fast")
    parser.add_argument("--postgres", type=int, choices=MAJORS, default=max(MAJORS), help="version of the server")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 3)
    return chosen


def bodies() -> list[bytes]:
    """What is sent, of one incident each."""
    notes = ["x" * 50] * 5
    return [
        json.dumps(
            {"incident": {"id": f"P{partition}", "title": "db is down", "urgency": "high", "notes": notes}}
        ).encode()
        for partition in range(PARTITIONS)
    ]


def written(directory: Path) -> tuple[Path, Path]:
    """The files that wrk reads: pushes, and webhooks with their signatures."""
    pushes, hooks = directory / "pushes", directory / "hooks"
    with pushes.open("wb") as file:
        for lane, body in enumerate(bodies()):
            file.write(b'{"items":[{"queue":"Plain","partition":"P%d","payload":%b}]}\n' % (lane, body))
    with hooks.open("wb") as file:
        for body in bodies():
            signed = sign(PRESETS["github"], SECRET.encode(), body, delivery_id="", now=0)
            file.write(b"%b %b\n" % (signed[b"x-hub-signature-256"], body))
    return pushes, hooks


class Round(NamedTuple):
    shot: Shot
    cpu_seconds: float
    """Of the broker."""

    @property
    def rate(self) -> float:
        return self.shot.requests / self.shot.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds / self.shot.requests * 1e6


def cpu_seconds(pid: int) -> float:
    """Of a process, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def hooked(url: str, directory: Path) -> AsyncIterator[BrokerProcess]:
    """A broker that knows the webhook."""
    spec = directory / "bench.fairlane"
    spec.write_text(SPEC)
    os.environ["BENCH_HOOK_SECRET"] = SECRET
    with broker_process(url) as broker:
        applying = [FAIRLANE, "spec", "apply", str(spec), "--server", broker.url]
        await asyncio.to_thread(subprocess.run, applying, check=True, capture_output=True)
        yield broker


async def flood(url: str, hooks: Path, count: int, *, connections: int = 64) -> tuple[Shot, list[float]]:
    """So many webhooks as fast as they are answered, while a consumer waits for them: seconds from the sending of each
    until the consumer has it. Those still on their way when wrk has sent the last may be cut off with it."""
    seen: list[float] = []
    over = asyncio.Event()

    async def consumer() -> None:
        async with Client(url) as client:
            while True:
                batch = await client.pop(
                    "Incidents", group="watch", batch=1000, partitions=PARTITIONS, auto_ack=True, wait=0.5
                )
                now = time.time()
                seen.extend(now - int(one.transaction_id.rpartition("-")[2]) / 1e6 for one in batch)
                if not batch and over.is_set():
                    return

    watching = asyncio.create_task(consumer())
    try:
        told = ["hook", "/hook/Alert", str(hooks), str(count)]
        shot = await shoot(url, told, connections=connections, seconds=60)
    finally:
        over.set()
        await watching
    if len(seen) < count - 2 * connections:
        raise SystemExit(f"only {len(seen)} of {count} webhooks came out")
    return shot, seen


async def measure(url: str, chosen: argparse.Namespace, directory: Path) -> tuple[list[Round], list[Round]]:
    """Pushes and webhooks, turn by turn."""
    pushes, hooks = written(directory)
    rounds: tuple[list[Round], list[Round]] = ([], [])
    told = (["post", "/api/v1/push", str(pushes)], ["hook", "/hook/Alert", str(hooks)])
    async with hooked(url, directory) as broker:
        for kind in told:  # queues and partitions are there, as in a broker at work
            await shoot(broker.url, kind, connections=1, seconds=1)
        for _ in range(chosen.rounds):
            for found, kind in zip(rounds, told, strict=True):
                before = cpu_seconds(broker.pid)
                shot = await shoot(broker.url, kind, connections=chosen.connections, seconds=1 if chosen.quick else 5)
                found.append(Round(shot, cpu_seconds(broker.pid) - before))
    return rounds


def table_of(kind: str, pushes: list[Round], hooks: list[Round]) -> Table:
    table = Table(
        title=f"{kind}: single messages",
        title_justify="left",
        caption="medians over the rounds; CPU is the broker's, and says something also on a busy machine",
        caption_justify="left",
    )
    for name in ("what", "a second", "p50 ms", "p99 ms", "CPU us", "ratio", "target", ""):
        table.add_column(name, justify="left" if name in ("what", "") else "right")
    plain = statistics.median(round.rate for round in pushes)
    for label, rounds in (("push", pushes), ("webhook, signed and typed", hooks)):
        found = statistics.median(round.rate for round in rounds)
        latencies = [statistics.median(getattr(round.shot, name) for round in rounds) for name in ("p50_ms", "p99_ms")]
        cells = [f"{found:,.0f}", *(f"{each:.2f}" for each in latencies)]
        cells.append(f"{statistics.median(round.cpu_us for round in rounds):.0f}")
        if rounds is hooks:
            cells += [f"{found / plain:.2f}", f"{SHARE:g}", verdict(found / plain, SHARE)]
        table.add_row(label, *cells)
    return table


def print_mapping(console: Console, seconds: float) -> None:
    """From the bytes of a message to the bytes of its command's input, on one core."""
    compiled = compile_spec(Source("spec", SPEC), lambda name: "")
    assert not problems(compiled)
    queue = CompiledQueue(compiled.spec, "Incidents")
    message = b'{"payload":%b,"headers":{},"source_ip":"::1","received_at":"2026-01-31T12:00:00Z"}' % bodies()[0]
    given = decoded(message)
    for label, act in (
        ("map_to of a decoded message", partial(queue.command, given)),
        ("map_to with the message's decoding", lambda: queue.command(decoded(message))),
    ):
        found = rate(act, seconds)
        console.print(f"{label}: {found:,.0f} a second on one core, target {MAPPED:,}: {verdict(found, MAPPED)}")


async def main() -> None:
    chosen = arguments()
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    stores = ["sqlite", "postgres"] if chosen.store == "both" else [chosen.store]
    with ExitStack() as stack:
        server: PostgresServer | None = None
        if "postgres" in stores:
            server = stack.enter_context(running(chosen.directory, major=chosen.postgres))
        print_machine(console, chosen.directory, await settings_in_force(server) if server else None)
        print_mapping(console, 0.05 if chosen.quick else 2.0)
        for kind in stores:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=chosen.directory)))
            if server is not None and kind == "postgres":
                async with fresh_database(server) as url:
                    console.print(table_of(kind, *await measure(url, chosen, directory)))
            else:
                console.print(table_of(kind, *await measure(f"sqlite:///{directory}/queue.db", chosen, directory)))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
