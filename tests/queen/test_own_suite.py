"""The tests that the newest queen-mq client ships pass against this broker, but for endpoints that it does not have."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.queen.environments import NEWEST, own_tests, python

PASSED = 73
SKIPPED = 2
"""Two are about identities from tokens, and skip themselves while no secret is given to them."""


@pytest.mark.timeout(480)
def test_the_newest_client_passes_its_own_tests(broker: BrokerProcess) -> None:
    run = subprocess.run(
        [
            *(python(NEWEST), "-m", "pytest", "-p", "suite_plugin", "-p", "no:cacheprovider", "-q"),
            *("-n", "4", "--dist", "loadgroup", "--tb", "short"),
        ],
        cwd=own_tests(),
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(Path(__file__).parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "QUEEN_SERVER_URL": broker.url,
        },
        capture_output=True,
        text=True,
    )
    counts = {
        outcome: int(count) for count, outcome in re.findall(r"(\d+) (passed|failed|skipped|errors?)", run.stdout)
    }
    assert counts == {"passed": PASSED, "skipped": SKIPPED}, run.stdout + run.stderr
