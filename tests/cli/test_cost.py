"""The CPU cost of commands. Each is a process, and most of its time is imports."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker_process import FAIRLANE
from tests.cli.conftest import Command

CPU_SECONDS = 0.25
COMMANDS = {
    "--version": "",
    "--help": "",
    "queue list": "",
    "push": "orders 1",
    "pop": "orders",
    "status": "",
    "message show": "0-1 nothing",
    "dlq list": "orders",
    "completion": "bash",
}
HEAVY = {
    *("aiohttp", "apsw", "asyncpg", "cryptography", "lark", "prometheus_client", "pydantic", "rich", "typer", "uvloop"),
    *("argparse", "http.client", "http.server", "multiprocessing", "unittest", "xml"),
    *("fairlane.broker", "fairlane.commands", "fairlane.http", "fairlane.poller", "fairlane.store", "fairlane.worker"),
}


def _cpu(command: list[str], environment: dict[str, str]) -> float:
    """Return the minimum of several runs, because other load on the machine adds to it."""
    costs = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(costs)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_imports_what_it_needs_and_nothing_else(name: str, fairlane: Command) -> None:
    words = f"{name} {COMMANDS[name]}".split()
    code = "import sys; from fairlane.cli.main import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=fairlane.environment, capture_output=True, text=True, timeout=60
    )
    modules = set(done.stderr.splitlines()[-1].split())
    assert "fairlane.cli.main" in modules
    assert not {one for one in modules for heavy in HEAVY if f"{one}.".startswith(f"{heavy}.")}


def test_a_command_takes_a_quarter_of_a_second_of_cpu_time_at_most(fairlane: Command, tmp_path: Path) -> None:
    """Measure with compiled modules. The limit grows on machines where the event loop alone is slow."""
    environment = fairlane.environment | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    bare = _cpu([sys.executable, "-c", "import asyncio; asyncio.run(asyncio.sleep(0))"], environment)
    for name in ("--version", "queue list", "push"):
        command = [str(FAIRLANE), *f"{name} {COMMANDS[name]}".split()]
        assert _cpu(command, environment) < max(CPU_SECONDS, 3 * bare), name
    assert os.listdir(tmp_path)
