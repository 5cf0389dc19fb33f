"""A minute of random faults on each store, by the command that users run. `make faults` runs longer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.broker_process import FAIRLANE

SECONDS_MAX = 600
"""Allows for a slow drain on a busy machine. A run that hangs fails earlier, by its own timeout."""


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "cells"])
def test_a_minute_of_random_faults_breaks_no_promise(store: str, tmp_path: Path) -> None:
    play(store, tmp_path, minutes=1)


def play(store: str, directory: Path, *, minutes: int) -> None:
    """Run `fairlane verify` in a process of its own. The output of a failed run ends with its seed."""
    url = f"sqlite:///{directory}/queue.db" if store == "sqlite" else store
    command = [
        FAIRLANE,
        "verify",
        "--store",
        url,
        "--minutes",
        str(minutes),
        "--report",
        str(directory / "report.html"),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60 * minutes + SECONDS_MAX - 60, check=False)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    for suffix in (".html", ".md"):
        assert "0 violations" in (directory / "report").with_suffix(suffix).read_text()
