"""The CPU seconds that each directory of tests took, beside its budget of `tests/tiers.py`.

`--hold-budgets`, which the Makefile sets where the variable CI is set, fails a run in which a directory took more.
CPU seconds count the worker processes and all their descendants. Wall seconds are printed only: they depend on what
else the machine does.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import DIRECTORIES, directory_of

_COLLECTION = "(collection)"
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants, dead or alive.

    A process that ended is counted by the one that waited for it. Where there is no /proc, those still alive are not
    counted.
    """
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        pid = int(stat.parent.name)
        children[int(fields[1])].append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    own = os.times()
    seconds, left = own.user + own.system + own.children_user + own.children_system, [*children[os.getpid()]]
    while left:
        pid = left.pop()
        seconds += ticks[pid] / _TICKS
        left += children[pid]
    return seconds


class Budgets:
    """A plugin that adds up the time of each directory and compares it with the budgets at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.cpu: dict[str, float] = defaultdict(float)
        self.wall: dict[str, float] = defaultdict(float)
        self.tests: dict[str, int] = defaultdict(int)
        self.exceeded: list[str] = []
        self._directory = _COLLECTION
        self._cpu, self._wall = 0.0, time.monotonic()

    def _switch_to(self, directory: str) -> None:
        """Add the time since the last switch to the current directory, then make `directory` the current one."""
        cpu, wall = cpu_seconds(), time.monotonic()
        self.cpu[self._directory] += max(0.0, cpu - self._cpu)  # less if a child was reaped by nobody
        self.wall[self._directory] += wall - self._wall
        self._directory, self._cpu, self._wall = directory, cpu, wall

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        directory = directory_of(item.nodeid)
        if directory != self._directory:  # neighbours share a directory, and reading all processes takes milliseconds
            self._switch_to(directory)
        self.tests[directory] += 1
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        totals: tuple[dict[str, Any], ...] = (self.cpu, self.wall, self.tests)
        spent = getattr(node, "workeroutput", {}).get("budgets", ({}, {}, {}))
        for total, share in zip(totals, spent, strict=True):
            for directory, amount in share.items():
                total[directory] += amount

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._directory != _COLLECTION:  # tests ran here, and not in worker processes only
            self._switch_to("")
        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            output["budgets"] = [dict(self.cpu), dict(self.wall), dict(self.tests)]
            return
        self.exceeded = [name for name in self.tests if self.cpu[name] > self.budget(name)]
        if self.exceeded and self.config.option.hold_budgets and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def budget(self, directory: str) -> int:
        known = DIRECTORIES.get(directory)
        if known is None:
            return 0
        return sum(getattr(known, tier) for tier in ("quick", "rest") if self.config.option.tier in (tier, "all"))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.config.option.collectonly or not self.tests:
            return
        terminalreporter.section("CPU seconds of each directory")
        terminalreporter.line(f"{'directory':<14}{'tests':>7}{'CPU s':>9}{'budget':>8}{'wall s':>9}")
        for name in sorted(self.tests):
            over = "  OVER BUDGET" if name in self.exceeded else ""
            spent = f"{self.tests[name]:>7}{self.cpu[name]:>9.1f}{self.budget(name):>8}{self.wall[name]:>9.1f}"
            terminalreporter.line(f"{name:<14}{spent}{over}", red=bool(over))
        terminalreporter.line(f"{_COLLECTION:<14}{'':>7}{self.cpu[_COLLECTION]:>9.1f}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hold-budgets", action="store_true", help="fail if a directory takes more CPU than its budget")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Budgets(config), "budgets")
