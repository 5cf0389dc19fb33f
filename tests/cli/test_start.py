"""The cost of starting a broker and a worker. Nearly all of it is imports, which these tests count."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bench.usage import usage_of
from tests.broker_process import FAIRLANE, BrokerProcess

MODULES_MAX = 720
"""More than a broker has today. One library more than needed is a hundred modules."""
CPU_SECONDS_MAX = 0.6
IMPORTTIME = {"PYTHONPROFILEIMPORTTIME": "1"}
UNUSED = {
    *("aiohttp", "asyncpg", "cronsim", "jwt", "lark", "opentelemetry", "prometheus_client", "pydantic", "watchfiles"),
    *("fractions", "http.client", "multiprocessing", "pickle", "unittest"),
}
"""Modules that neither a broker on SQLite without specs nor a worker without schedules uses."""


def imported(lines: list[str]) -> set[str]:
    """Return the modules in the output of `python -X importtime`."""
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def unneeded(modules: set[str]) -> set[str]:
    return {one for one in modules for unused in UNUSED if f"{one}.".startswith(f"{unused}.")}


def test_a_broker_serves_before_it_imports_what_few_need(tmp_path: Path) -> None:
    broker = BrokerProcess(f"sqlite:///{tmp_path}/queue.db", data_dir=tmp_path / "data", environment=IMPORTTIME)
    broker.start()
    broker.stop()
    modules = imported(broker.log)
    assert "fairlane.store.sqlite.store" in modules
    assert not unneeded(modules)
    assert len(modules) < MODULES_MAX


def test_a_worker_starts_before_it_imports_what_few_need(cli_broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from fairlane import App\napp = App()\n\n@app.handler('starts')\nasync def f(m): ...\n"
    )
    command = [FAIRLANE, "worker", "shop:app", "--server", cli_broker.url]
    lines: list[str] = []
    environment = os.environ | IMPORTTIME
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as worker:
        assert worker.stderr is not None
        for line in worker.stderr:
            lines.append(line)
            if "handling queue" in line:
                worker.terminate()
    assert worker.returncode == 0, "".join(line for line in lines if not line.startswith("import time"))
    modules = imported(lines)
    assert "fairlane.worker.worker" in modules
    assert not unneeded(modules)
    assert len(modules) < MODULES_MAX


def test_a_broker_serves_within_a_second_of_cpu_time(tmp_path: Path) -> None:
    """Measure with compiled modules, and the minimum, because other load on the machine adds to it."""
    environment = {"PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    costs = []
    for number in range(3):
        store, data = f"sqlite:///{tmp_path}/{number}.db", tmp_path / f"data-{number}"
        broker = BrokerProcess(store, data_dir=data, environment=environment)
        broker.start()
        costs += [usage.cpu_seconds for usage in usage_of([broker.pid]).values()]
        broker.stop()
    assert min(costs) < CPU_SECONDS_MAX
