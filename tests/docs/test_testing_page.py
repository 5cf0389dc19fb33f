"""What the page about testing shows runs as it is printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_snippets import blocks

BLOCKS = blocks("docs/testing.md", "python")


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_programs_of_the_page_about_testing_run(tmp_path: Path, number: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(BLOCKS[number], encoding="utf-8")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", range(len(blocks("docs/workers.md", "python"))))
def test_the_apps_of_the_page_about_workers_can_be_run(tmp_path: Path, number: int) -> None:
    program = tmp_path / "program.py"
    text = blocks("docs/workers.md", "python")[number]
    program.write_text(f"{text}\nassert app.subscriptions()\n", encoding="utf-8")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
