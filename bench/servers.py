"""Compare our HTTP server with others: CPU of one request whose handler decodes a push and answers.

    python -m bench.servers            each server in turn, three rounds
    python -m bench.servers --quick    only tries it
    python -m bench.servers --deadlines    instead: after how long each closes a connection on which nothing more comes

The others are installed into an environment of their own, .venv-servers; what cannot be installed is said and left out.
Every server has one process with uvloop, as far as it can use it, and writes no log of requests. wrk sends over 16
connections that stay open. CPU is that of the server's processes, so that what wrk takes is not in it; once with the
same few headers all the time, once with one that is new in each request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from bench.load import PAYLOAD
from bench.report import print_machine
from bench.wrk import shoot

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv-servers"
PATH = "/api/v1/push"
CONNECTIONS = 16
BODIES = [
    msgspec.json.encode({"items": [{"queue": "bench", "partition": f"lane-{lane}", "payload": msgspec.Raw(PAYLOAD)}]})
    for lane in range(100)
]


class Peer(NamedTuple):
    """A server, how it is started, and the package that it is in; our own is in none."""

    label: str
    command: Sequence[str]
    package: str = ""


_MODULE = (str(VENV / "bin/python"), "-m")
SERVERS = [
    Peer("Fairlane", (sys.executable, "-m", "bench.handlers.fairlane_server", "{port}")),
    Peer(
        "Granian, RSGI",
        (
            *(*_MODULE, "granian", "bench.handlers.rsgi:app", "--interface", "rsgi", "--host", "127.0.0.1"),
            *("--port", "{port}", "--workers", "1", "--loop", "uvloop", "--no-ws", "--log-level", "warning"),
        ),
        "granian",
    ),
    Peer(
        "uvicorn, httptools",
        (
            *(*_MODULE, "uvicorn", "bench.handlers.asgi:app", "--port", "{port}", "--loop", "uvloop"),
            *("--http", "httptools", "--no-access-log", "--log-level", "warning"),
        ),
        "uvicorn",
    ),
    Peer("aiohttp, web.Server", (*_MODULE, "bench.handlers.aiohttp_server", "{port}", "plain"), "aiohttp"),
    Peer("aiohttp, web.Application", (*_MODULE, "bench.handlers.aiohttp_server", "{port}", "routed"), "aiohttp"),
    Peer(
        "hypercorn",
        (
            *(*_MODULE, "hypercorn", "bench.handlers.asgi:app", "--bind", "127.0.0.1:{port}"),
            *("--worker-class", "uvloop", "--workers", "1", "--log-level", "warning"),
        ),
        "hypercorn",
    ),
]


def installed(console: Console) -> dict[str, str]:
    """The packages of other servers that could be installed, with their versions."""
    if not (VENV / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip = [str(VENV / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
    same = [f"{name}=={version(name)}" for name in ("httptools", "msgspec", "uvloop")]
    found = {}
    for name in dict.fromkeys(server.package for server in SERVERS if server.package):
        done = subprocess.run([*pip, "--quiet", "install", *same, name], capture_output=True, text=True)
        if done.returncode != 0:
            console.print(f"{name} could not be installed: {done.stderr.strip().splitlines()[-1]}")
            continue
        shown = subprocess.run([*pip, "show", name], capture_output=True, text=True, check=True).stdout
        found[name] = shown.partition("Version: ")[2].splitlines()[0]
    return found


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def running(server: Peer) -> Iterator[tuple[str, int]]:
    """Its URL and process; SystemExit if it does not start."""
    port = free_port()
    command = [part.format(port=port) for part in server.command]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        give_up_at = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise SystemExit(f"{server.label} does not start: {' '.join(command)}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(20)


def cpu_seconds(pid: int) -> float:
    """Of a process and its children, as far as they live."""
    total, parents = 0.0, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    for one, (parent, ticks) in parents.items():
        if pid in (one, parent):
            total += ticks
    return total / os.sysconf("SC_CLK_TCK")


class Measured(NamedTuple):
    cpu_us: float
    per_second: float


async def measure(url: str, pid: int, told: Sequence[str], seconds: int) -> Measured:
    await shoot(url, told, connections=CONNECTIONS, seconds=1)
    before = cpu_seconds(pid)
    shot = await shoot(url, told, connections=CONNECTIONS, seconds=seconds)
    return Measured((cpu_seconds(pid) - before) / shot.requests * 1e6, shot.requests / shot.seconds)


async def run(
    servers: Sequence[Peer], directory: Path, rounds: int, seconds: int
) -> dict[str, tuple[list[Measured], list[Measured]]]:
    """By server: with the same headers, and with new ones."""
    found: dict[str, tuple[list[Measured], list[Measured]]] = {server.label: ([], []) for server in servers}
    for _ in range(rounds):
        for server in servers:
            with running(server) as (url, pid):
                for kind, told in enumerate((["post", PATH, f"{directory}/same"], ["hook", PATH, f"{directory}/new"])):
                    found[server.label][kind].append(await measure(url, pid, told, seconds))
    return found


STOPS = {
    "no request": b"",
    "half a header": b"POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\n",
    "half a body": b"POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nhalf",
    "after an answer": b'POST /api/v1/push HTTP/1.1\r\nhost: localhost\r\ncontent-length: 12\r\n\r\n{"items":[]}',
}
PATIENCE_SECONDS = 120


async def closed_after(url: str, sent: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(sent)
    began = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await reader.read(1000):
                pass
        return f"{time.monotonic() - began:.0f} s"
    except TimeoutError:
        return "open"
    finally:
        writer.transport.abort()


async def deadlines(servers: Sequence[Peer]) -> Table:
    table = Table("server", *STOPS, caption=f"open: for {PATIENCE_SECONDS} s at least", caption_justify="left")
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(running(server))[0] for server in servers]
        found = await asyncio.gather(*(closed_after(url, sent) for url in urls for sent in STOPS.values()))
    for number, server in enumerate(servers):
        table.add_row(server.label, *found[number * len(STOPS) : (number + 1) * len(STOPS)])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run, not how fast")
    parser.add_argument("--deadlines", action="store_true", help="when connections are closed, not what requests cost")
    chosen = parser.parse_args()
    console = Console(highlight=False, width=120)
    packages = installed(console)
    print_machine(console, Path(tempfile.gettempdir()), None)
    servers = [server for server in SERVERS if not server.package or server.package in packages]
    if chosen.deadlines:
        console.print(asyncio.run(deadlines(servers)))
        return
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "same").write_bytes(b"\n".join(BODIES))
        signed = (b"sha256=%064d %b" % (number, body) for number, body in enumerate(BODIES))
        Path(directory, "new").write_bytes(b"\n".join(signed))
        rounds, seconds = (1, 1) if chosen.quick else (chosen.rounds, 5)
        found = asyncio.run(run(servers, Path(directory), rounds, seconds))
    table = Table(caption="medians over the rounds", caption_justify="left")
    table.add_column("server")
    for name in ("version", "CPU us", "of ours", "a second", "new header: us", "of ours", "a second"):
        table.add_column(name, justify="right")
    medians = {
        label: [statistics.median(one[field] for one in kind) for kind in kinds for field in (0, 1)]
        for label, kinds in found.items()
    }
    ours = medians[SERVERS[0].label]
    for server in servers:
        cpu, rate, new_cpu, new_rate = medians[server.label]
        cells = [f"{cpu:.1f}", f"{cpu / ours[0]:.2f}", f"{rate:,.0f}"]
        cells += [f"{new_cpu:.1f}", f"{new_cpu / ours[2]:.2f}", f"{new_rate:,.0f}"]
        table.add_row(server.label, packages.get(server.package, ""), *cells)
    console.print(table)


if __name__ == "__main__":
    main()
