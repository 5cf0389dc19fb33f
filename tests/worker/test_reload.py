"""`--reload`: the command runs again when a source file changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.until import until

# Starting processes and reading their output blocks the loop for a moment.
pytestmark = pytest.mark.may_block_loop

RELOADING = """
import sys
from pathlib import Path
from fairlane.cli.processes.reload import run_with_reload
sys.exit(run_with_reload([sys.executable, *sys.argv[2:]], Path(sys.argv[1])))
"""
COMMAND = """
import pathlib, signal, sys, time
import source
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
with pathlib.Path("runs").open("a") as runs:
    runs.write(f"{source.VALUE}\\n")
if source.VALUE == "broken":
    sys.exit(1)
time.sleep(300)
"""


@pytest.fixture
def reloading(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "package").mkdir()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "source.py").write_text("VALUE = 'first'")
    (tmp_path / "command.py").write_text(COMMAND)
    arguments = [sys.executable, "-c", RELOADING, str(tmp_path), "-B", "command.py"]
    process = subprocess.Popen(arguments, cwd=tmp_path)
    yield process
    process.terminate()
    process.wait()


async def ran(directory: Path, *values: str) -> None:
    runs = directory / "runs"
    await until(lambda: runs.exists() and runs.read_text().split() == list(values), seconds=30)


async def test_a_changed_a_new_and_a_removed_source_file_start_it_again(
    tmp_path: Path, reloading: subprocess.Popen[bytes]
) -> None:
    await ran(tmp_path, "first")
    (tmp_path / "source.py").write_text("VALUE = 'second'")
    await ran(tmp_path, "first", "second")
    (tmp_path / "package" / "more.py").touch()
    await ran(tmp_path, "first", "second", "second")
    (tmp_path / "package" / "more.py").unlink()
    await ran(tmp_path, "first", "second", "second", "second")
    reloading.terminate()
    await until(lambda: reloading.poll() == 7, seconds=30)


async def test_what_is_no_source_starts_nothing(tmp_path: Path, reloading: subprocess.Popen[bytes]) -> None:
    await ran(tmp_path, "first")
    (tmp_path / "__pycache__" / "source.py").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "source.pyc").touch()
    (tmp_path / "source.py").write_text("VALUE = 'second'")
    await ran(tmp_path, "first", "second")


async def test_a_command_that_ended_runs_again_once_it_is_mended(
    tmp_path: Path, reloading: subprocess.Popen[bytes]
) -> None:
    await ran(tmp_path, "first")
    (tmp_path / "source.py").write_text("VALUE = 'broken'")
    await ran(tmp_path, "first", "broken")
    (tmp_path / "source.py").write_text("VALUE = 'mended'")
    await ran(tmp_path, "first", "broken", "mended")
