"""What is printed: the machine, the comparisons, the verdicts."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import apsw
from rich.console import Console
from rich.table import Table

from bench.load import Rate, Run

SYNCS = 50


class Comparison(NamedTuple):
    """A row of the table: a run, and the one it is held against."""

    label: str
    run: Run
    against: Run | None = None
    against_label: str = ""
    target: float | None = None
    lanes: bool = False
    """Compare claimed lanes instead of messages."""

    def figure(self, rate: Rate) -> float:
        return rate.lanes_per_second if self.lanes else rate.per_second


def verdict(value: float, target: float, *, at_most: bool = False) -> str:
    """Whether the target holds, or by how much of it not, for a console."""
    if value <= target if at_most else value >= target:
        return "[green]holds[/]"
    return f"[bold red]MISSED by {f'{abs(value - target) / target:.0%}' if target else f'{value:g}'}[/]"


def table_of(title: str, rows: Sequence[Comparison], rates: Mapping[Run, Sequence[Rate]]) -> Table:
    """Medians over the rounds; `rounds` is the lowest and highest ratio of one round."""
    table = Table(
        title=title,
        title_justify="left",
        caption="medians over the rounds, per second",
        caption_justify="left",
    )
    for name in ("workload", "Fairlane", "yardstick", "reached", "ratio", "rounds", "target", ""):
        table.add_column(name, justify="left" if name in ("workload", "yardstick", "") else "right")
    for row in rows:
        ours = [row.figure(rate) for rate in rates[row.run]]
        cells = [row.label, f"{statistics.median(ours):,.0f}{' lanes' if row.lanes else ''}"]
        if row.against is not None:
            cells += _against(row, ours, [row.figure(rate) for rate in rates[row.against]])
        table.add_row(*cells)
    return table


def _against(row: Comparison, ours: Sequence[float], theirs: Sequence[float]) -> list[str]:
    ratio = statistics.median(ours) / statistics.median(theirs)
    by_round = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return [
        row.against_label,
        f"{statistics.median(theirs):,.0f}",
        f"{ratio:.2f}",
        f"{min(by_round):.2f} to {max(by_round):.2f}",
        "" if row.target is None else f"{row.target:g}",
        "" if row.target is None else verdict(ratio, row.target),
    ]


def print_machine(console: Console, directory: Path, postgres: Mapping[str, str] | None) -> None:
    for line in machine(directory, postgres):
        console.print(line)


def machine(directory: Path, postgres: Mapping[str, str] | None) -> list[str]:
    """All that a reader needs to judge the figures, or to repeat them."""
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} x {_cpu_model()}, {_memory()}, {platform.platform()}"
    ]
    versions = ", ".join(f"{name} {_version(name)}" for name in ("fairlane", "apsw", "asyncpg", "msgspec", "uvloop"))
    lines.append(f"Python {platform.python_version()}{_build()}, {versions}, SQLite {apsw.sqlite_lib_version()}")
    if postgres is not None:
        settings = dict(postgres)
        told = ", ".join(f"{k}={v}" for k, v in settings.items() if k != "server_version")
        lines.append(f"PostgreSQL {settings['server_version']}: {told}")
    lines.append(f"fdatasync of a 4 KiB append takes {sync_seconds(directory) * 1000:.2f} ms (median)")
    if hasattr(os, "getloadavg"):
        lines.append(f"load average before the first run: {os.getloadavg()[0]:.2f}; above 0.3 somebody else is at work")
    return lines


def _build() -> str:
    """How the interpreter was built, as far as it tells. A distribution's own is, whatever its arguments were."""
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


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def sync_seconds(directory: Path) -> float:
    """A commit costs at least this. Microseconds mean memory, or a disk that pretends."""
    taken = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            file.flush()
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
