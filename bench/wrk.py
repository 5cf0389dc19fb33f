"""Load over HTTP by wrk, whose closed-loop connections cost little CPU beside the server that they drive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Sequence
from pathlib import Path

import msgspec

from bench.load import PARTITIONS, PAYLOAD
from bench.meter import Meter
from bench.results import Measurement
from bench.workloads import GROUP, QUEUE

SCRIPT = Path(__file__).with_name("wrk.lua")
CONNECTIONS = 64
LAST_ACKS_SECONDS_MAX = 5
_APT = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "wrk"]


class WrkResult(msgspec.Struct):
    """The result of one run of wrk. `messages` are counted in the answers, or computed from `requests` for pushes."""

    requests: int
    messages: int
    seconds: float
    failed: int
    p50_ms: float
    p99_ms: float
    p999_ms: float


def wrk() -> str:
    """Return the path of wrk, and install it if possible. Raises SystemExit if it is missing."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
    found = shutil.which("wrk")
    if found is None:
        raise SystemExit("wrk is missing: install it (apt install wrk, brew install wrk) and run this again")
    return found


def _install() -> None:
    """Install wrk, and refresh the package lists if that fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (_APT, ["apt-get", "update", "--quiet"], _APT):
        done = subprocess.run(command, capture_output=True, env=environment)
        if command is _APT and done.returncode == 0:
            return


async def run_wrk(url: str, arguments: Sequence[str], *, connections: int, seconds: int) -> WrkResult:
    """Run wrk.lua with these arguments. It ends early when the script has nothing more to do."""
    process = await asyncio.create_subprocess_exec(
        *(wrk(), "--threads", "1", "--connections", str(connections), "--duration", f"{seconds}s"),
        *("--timeout", "10s", "--script", str(SCRIPT), url, "--", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    output, _ = await asyncio.gather(process.stdout.read(), _interrupt_when_dry(process, process.stderr))
    if await process.wait() != 0 or not output:
        raise SystemExit(f"wrk failed: {output.decode()}")
    result = msgspec.json.decode(output.strip().splitlines()[-1], type=WrkResult)
    if result.failed:
        raise SystemExit(f"{result.failed} of {result.requests} requests failed: {' '.join(arguments)}")
    return result


async def _interrupt_when_dry(process: asyncio.subprocess.Process, errors: asyncio.StreamReader) -> None:
    """Interrupt wrk when its script is done, because wrk sleeps until its time is up."""
    async for line in errors:
        if line == b"dry\n":
            with contextlib.suppress(ProcessLookupError):  # it may have ended meanwhile
                process.send_signal(signal.SIGINT)
        else:
            print(line.decode(), end="")


def push_bodies(batch: int, spread: int, *, queue: str = QUEUE) -> list[bytes]:
    """Return request bodies of `batch` messages to `spread` partitions each. Together they reach all partitions."""
    bodies = []
    for first in range(0, PARTITIONS, spread):
        names = [f"lane-{first + number % spread}" for number in range(batch)]
        items = [{"queue": queue, "partition": name, "payload": msgspec.Raw(PAYLOAD)} for name in names]
        bodies.append(msgspec.json.encode({"items": items}))
    return bodies


def pop_path(batch: int, *, queue: str = QUEUE, group: str = GROUP, more: str = "") -> str:
    return f"/api/v1/pop/queue/{queue}?batch={batch}&consumerGroup={group}{more}"


async def push_load(url: str, bodies: list[bytes], *, seconds: int, connections: int = CONNECTIONS) -> WrkResult:
    """Post the bodies in turn."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(bodies))
        file.flush()
        result = await run_wrk(url, ["post", "/api/v1/push", file.name], connections=connections, seconds=seconds)
    result.messages = result.requests * bodies[0].count(b'"payload"')
    return result


async def pop_load(
    url: str, path: str, *, ack: bool = True, seconds: int, connections: int = CONNECTIONS, stay: bool = False
) -> WrkResult:
    """Pop until the queue is empty, or for the whole time with `stay`. Every popped message is acked in the end."""
    arguments = ["stay" if stay else "pop", path, *(["ack", str(seconds)] if ack else [])]
    seconds += LAST_ACKS_SECONDS_MAX if ack else 0
    return await run_wrk(url, arguments, connections=connections, seconds=seconds)


async def fan_out_load(url: str, bodies: list[bytes], paths: list[str], *, seconds: int) -> WrkResult:
    """Push once and pop each path once, over and over. Counts the popped messages."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(bodies))
        file.flush()
        arguments = ["fan", "/api/v1/push", file.name, *paths]
        return await run_wrk(url, arguments, connections=CONNECTIONS, seconds=seconds)


async def measured(meter: Meter, load: Awaitable[WrkResult]) -> Measurement:
    """Run the load and return its rates with its cost. No other child process may end meanwhile."""
    await meter.begin()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = await load
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    await meter.end()
    client = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return meter.cost(result.messages)._replace(
        rate=result.messages / result.seconds,
        client_us=client / max(1, result.messages) * 1e6,
        p50=result.p50_ms,
        p99=result.p99_ms,
        p999=result.p999_ms,
    )
