"""The program on the page about moving from Queen MQ runs as printed, with the published clients."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.broker_process import BrokerProcess
from tests.queen.environments import ROOT, VERSIONS, python


@pytest.mark.parametrize("version", VERSIONS)
def test_the_program_of_the_page_runs(version: str, sqlite_broker: BrokerProcess) -> None:
    [program] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/queen.md").read_text(encoding="utf-8"), re.DOTALL)
    program = program.replace("http://127.0.0.1:6632", sqlite_broker.url).replace('"orders"', f'"orders-{version}"')
    done = subprocess.run([python(version), "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "customer-7 {'total': 42}" in done.stdout
