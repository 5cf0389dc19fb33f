"""Fairlane does not need the package for Queen's clients: without it, the other tests pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = (
    "http",
    "client",
    "cli/test_golden.py",
    "cli/test_status.py",
    "conformance/test_look_ups.py",
    "conformance/test_tenants.py",
    "unit/test_encryption_at_rest.py",
    "unit/test_facades.py",
    "unit/test_statements.py",
)
SECONDS_MAX = 1200


@pytest.mark.may_block_loop
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_other_tests_pass_without_the_package(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", ".git", ".venv*", "build", ".*_cache", ".hypothesis", "dist")
    copy = shutil.copytree(ROOT, tmp_path / "copy", ignore=ignored, symlinks=True)
    shutil.rmtree(copy / "src" / "fairlane" / "queen")
    shutil.rmtree(copy / "tests" / "queen")
    files = [str(copy / "tests" / name) for name in TESTS]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tier", "quick", "-n", "2", *files],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert "no tests ran" not in ran.stdout
