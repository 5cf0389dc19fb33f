"""Measure what credentials and TLS cost a push: the rate beside that of an open broker in the same round.

    python -m bench.access                  SQLite, 4 interleaved rounds
    python -m bench.access --quick

Each broker is a process of its own on an empty file; wrk pushes one message per request over connections that stay
open. A missed target is printed as MISSED and does not change the exit code: the figures belong to the machine."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jwt
import trustme
from rich.console import Console
from rich.table import Table

from bench.report import print_machine, verdict
from bench.shots import push_bodies
from bench.usage import difference, usage_of
from bench.wrk import shoot
from fairlane.runtime.process import new_event_loop
from tests.broker_process import FAIRLANE, BrokerProcess, broker_process

SECRET = "for the tokens of a measurement, and nothing else"
CONNECTIONS = 64


class Way(NamedTuple):
    """How callers are known. `target` is the share of an open broker's rate to reach."""

    name: str
    target: float | None = None


WAYS = (Way("open"), Way("key", 0.95), Way("token", 0.9), Way("TLS", 0.7))


@contextmanager
def broker(way: Way, directory: Path) -> Iterator[tuple[BrokerProcess, list[str]]]:
    """A broker that knows its callers in this way, and the headers that they send."""
    store, more, headers = f"sqlite:///{directory}/queue.db", [], []
    if way.name == "key":
        made = subprocess.run(
            [FAIRLANE, "key", "create", "bench", "--role", "read-write", "--store", store],
            check=True,
            capture_output=True,
            text=True,
        )
        headers = [f"Authorization: Bearer {made.stdout.strip()}"]
    elif way.name == "token":
        settings = directory / "fairlane.toml"
        settings.write_text(f'jwt_secret = "{SECRET}"\n')
        more = ["--config", str(settings)]
        claims = {"sub": "bench", "role": "read-write", "exp": int(time.time()) + 3600}
        headers = [f"Authorization: Bearer {jwt.encode(claims, SECRET, 'HS256')}"]
    elif way.name == "TLS":
        certificate = trustme.CA().issue_cert("127.0.0.1")
        file = directory / "tls.pem"
        certificate.private_key_and_cert_chain_pem.write_to_path(file)
        file.chmod(0o600)
        more = ["--tls-cert", str(file)]
    with broker_process(store, *more) as process:
        yield process, headers


async def measure(way: Way, seconds: int, base: Path) -> tuple[float, float]:
    """Pushes a second, and microseconds of CPU that one costs the broker."""
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-bench-", dir=base) as directory,
        broker(way, Path(directory)) as (process, headers),
        tempfile.NamedTemporaryFile() as file,
    ):
        file.write(b"\n".join(push_bodies(1, 1)))
        file.flush()
        told = ["post", "/api/v1/push", file.name]
        await shoot(process.url, told, connections=CONNECTIONS, seconds=1, headers=headers)
        before = usage_of([process.pid])
        shot = await shoot(process.url, told, connections=CONNECTIONS, seconds=seconds, headers=headers)
        used = difference(before, usage_of([process.pid]))
    return shot.requests / shot.seconds, used.cpu_seconds / shot.requests * 1e6


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="how often each is measured (4)")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run, not how fast")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    chosen = parser.parse_args()
    rounds, seconds = chosen.rounds or (1 if chosen.quick else 4), 1 if chosen.quick else 5
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    print_machine(console, chosen.directory, None)
    found: dict[Way, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            found[way].append(await measure(way, seconds, chosen.directory))
    table = Table("callers", "pushes/s", "CPU us", "rate to open", "CPU of open to it", "target", "")
    rates = {way: statistics.median(rate for rate, _ in runs) for way, runs in found.items()}
    costs = {way: statistics.median(cost for _, cost in runs) for way, runs in found.items()}
    for way in WAYS:
        ratio, cheap = rates[way] / rates[WAYS[0]], costs[WAYS[0]] / costs[way]
        bound = ("", "") if way.target is None else (f"{way.target:g}", verdict(ratio, way.target))
        table.add_row(way.name, f"{rates[way]:,.0f}", f"{costs[way]:.1f}", f"{ratio:.2f}", f"{cheap:.2f}", *bound)
    console.print(table)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
