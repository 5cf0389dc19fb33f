"""A minute of random faults on each store. `make faults` runs ten."""

from __future__ import annotations

import subprocess
import sys

import pytest

SECONDS_MAX = 600
"""Allows for a slow drain on a busy machine. A run that hangs fails earlier, by its own timeout."""


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_minute_of_random_faults_breaks_no_promise(store: str) -> None:
    play(store, seconds=60)


def play(store: str, *, seconds: int) -> None:
    """Run a history in a process of its own. The output of a failed one begins with its seed."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.history", "--store", store, "--seconds", str(seconds)],
        capture_output=True,
        text=True,
        timeout=seconds + SECONDS_MAX - 60,
    )
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
