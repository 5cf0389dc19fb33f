"""Drives wrk: closed-loop connections that cost little beside the server they measure."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

SCRIPT = Path(__file__).with_name("wrk.lua")
_APT = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "wrk"]


class Shot(msgspec.Struct):
    """What one run of wrk found. `messages` counts what answers said; of pushes, `requests` must do."""

    requests: int
    messages: int
    seconds: float
    failed: int
    p50_ms: float
    p99_ms: float
    p999_ms: float


def wrk() -> str:
    """The program, installed if that is possible; SystemExit says what to do."""
    if shutil.which("wrk") is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
    found = shutil.which("wrk")
    if found is None:
        raise SystemExit("wrk is missing: install it (apt install wrk, brew install wrk) and run this again")
    return found


def _install() -> None:
    """By what the package lists say, and if that fails by fresh ones."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (_APT, ["apt-get", "update", "--quiet"], _APT):
        done = subprocess.run(command, capture_output=True, env=environment)
        if command is _APT and done.returncode == 0:
            return


async def shoot(
    url: str, arguments: Sequence[str], *, connections: int, seconds: int, headers: Sequence[str] = ()
) -> Shot:
    """One run, which ends early when the script finds nothing more to do."""
    process = await asyncio.create_subprocess_exec(
        *(wrk(), "--threads", "1", "--connections", str(connections), "--duration", f"{seconds}s"),
        *("--timeout", "10s", "--script", str(SCRIPT), *(part for one in headers for part in ("--header", one))),
        *(url, "--", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said, _ = await asyncio.gather(process.stdout.read(), _interrupt_when_dry(process, process.stderr))
    if await process.wait() != 0 or not said:
        raise SystemExit(f"wrk failed: {said.decode()}")
    shot = msgspec.json.decode(said.strip().splitlines()[-1], type=Shot)
    if shot.failed:
        raise SystemExit(f"{shot.failed} of {shot.requests} requests failed: {' '.join(arguments)}")
    return shot


async def _interrupt_when_dry(process: asyncio.subprocess.Process, errors: asyncio.StreamReader) -> None:
    """wrk itself sleeps to the end of its time, unless it is told to stop."""
    async for line in errors:
        if line == b"dry\n":
            with contextlib.suppress(ProcessLookupError):  # it may have ended meanwhile
                process.send_signal(signal.SIGINT)
        else:
            print(line.decode(), end="")
