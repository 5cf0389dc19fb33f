"""The client and the command line with the lowest versions of the libraries that the base install allows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-lowest"
TESTS = ("tests/client", "tests/cli/test_messages.py", "tests/cli/test_mistakes.py")


@pytest.mark.timeout(900)
def test_the_client_and_the_command_line_work_with_the_lowest_versions_of_their_libraries() -> None:
    if not (ENVIRONMENT / ".ready").exists():
        pytest.fail("the lowest versions are not installed: run `make .venv-lowest/.ready`", pytrace=False)
    # Settings of the outer run for its worker processes are not meant for this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [ENVIRONMENT / "bin/python", "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
