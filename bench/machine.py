"""Facts about the machine and the software that a reader needs to judge the figures or to repeat them."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import apsw

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("fairlane", "apsw", "asyncpg", "msgspec", "uvloop")
SYNCS = 50
QUIET_LOAD, QUIET_STEAL = 0.5, 0.02
_STEAL_FIELD = 8


def facts(directory: Path, postgres: Mapping[str, str]) -> list[str]:
    """Describe the commit, the machine, the versions and the disk below `directory`, one sentence each."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    settings = ", ".join(f"{name}={value}" for name, value in postgres.items() if name != "server_version")
    return [
        f"Commit {_commit()}.",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} x {_cpu_model()}, {_memory()}, "
        f"{platform.platform()}.",
        f"Python {platform.python_version()}{_build()}, {versions}, SQLite {apsw.sqlite_lib_version()}.",
        f"PostgreSQL {postgres['server_version']}: {settings}.",
        f"An fdatasync of a 4 KiB append takes {sync_seconds(directory) * 1000:.2f} ms (median).",
    ]


class QuietCheck:
    """Checks whether other work ran on the machine during the benchmark."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._began, self._ticks = time.monotonic(), _processor_ticks()

    def summary(self) -> str:
        """Describe the load before the run, the stolen CPU time and the duration so far."""
        total, stolen = (now - then for now, then in zip(_processor_ticks(), self._ticks, strict=True))
        steal = stolen / total if total else 0.0
        quiet = self._load <= QUIET_LOAD and steal <= QUIET_STEAL
        minutes = (time.monotonic() - self._began) / 60
        return (
            f"{'The machine was quiet' if quiet else 'THE MACHINE WAS NOT QUIET'}: load average {self._load:.2f} "
            f"before the run, {steal:.1%} of the CPU time stolen by the host. The run took {minutes:.1f} minutes."
        )


def _processor_ticks() -> tuple[int, int]:
    """Return the ticks of all processors, and those that the host gave to other guests."""
    stats = Path("/proc/stat")
    if not stats.exists():
        return 0, 0
    fields = [int(field) for field in stats.read_text().splitlines()[0].split()[1:]]
    return sum(fields[:_STEAL_FIELD]), fields[_STEAL_FIELD - 1]


def _commit() -> str:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=, with local changes"], cwd=ROOT, capture_output=True, text=True
    )
    return described.stdout.strip() or "unknown: this is not a clone"


def _build() -> str:
    """Describe how the interpreter was built, because optimisations change every figure."""
    if sys.base_prefix == "/usr":
        return " of the distribution"
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return " (built with optimisations)" if optimised else " (built WITHOUT optimisations)"


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _cpu_model() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def sync_seconds(directory: Path) -> float:
    """Return the median time of an fdatasync. Microseconds mean a disk that does not really flush."""
    taken = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)
