"""The tests that the newest queen-mq client ships pass, except for endpoints that this broker does not have."""

from __future__ import annotations

import re
import secrets
import subprocess
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess, broker_process
from tests.queen.environments import NEWEST, own_tests, python

PASSED = 73
SKIPPED = 2
"""Two tests are about identities from tokens, which another test covers."""


@pytest.mark.timeout(480)
def test_the_newest_client_passes_its_own_tests(broker: BrokerProcess) -> None:
    counts, output = _run(broker, "-n", "4", "--dist", "loadgroup")
    assert counts == {"passed": PASSED, "skipped": SKIPPED}, output


def test_the_newest_client_passes_its_tests_of_identities(tmp_path: Path) -> None:
    """With a secret, the skipped tests run and the one for brokers without a secret is skipped."""
    secret = secrets.token_hex(32)
    settings = tmp_path / "fairlane.toml"
    settings.write_text(f'jwt_secret = "{secret}"\n', encoding="utf-8")
    with broker_process(f"sqlite:///{tmp_path}/queue.db", "--config", str(settings)) as broker:
        counts, output = _run(broker, "test_auth.py", JWT_SECRET=secret)
    assert counts == {"passed": 2, "skipped": 1}, output


def _run(broker: BrokerProcess, *arguments: str, **environment: str) -> tuple[dict[str, int], str]:
    run = subprocess.run(
        [
            *(python(NEWEST), "-m", "pytest", "-p", "suite_plugin", "-p", "no:cacheprovider", "-q"),
            *("--tb", "short", *arguments),
        ],
        cwd=own_tests(),
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(Path(__file__).parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "QUEEN_SERVER_URL": broker.url,
            **environment,
        },
        capture_output=True,
        text=True,
    )
    found = re.findall(r"(\d+) (passed|failed|skipped|errors?)", run.stdout)
    return {outcome: int(count) for count, outcome in found}, run.stdout + run.stderr
