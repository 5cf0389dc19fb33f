"""`fairlane worker` with a broken module: prints Python's traceback without Fairlane's frames."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.broker_process import FAIRLANE


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        ("def broken(:\n", "jobs:app", "SyntaxError"),
        ("import not_there_at_all\n", "jobs:app", "No module named 'not_there_at_all'"),
        ("raise RuntimeError('my own')\n", "jobs:app", "RuntimeError: my own"),
        ("app = 1\n", "jobs:app", "is not a fairlane.App"),
        ("app = 1\n", "jobs", "use module:app"),
        ("app = 1\n", "nowhere:app", "module 'nowhere' was not found"),
    ],
)
def test_a_mistake_in_the_module_is_told_without_our_own_frames(
    text: str, target: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(text)
    done = subprocess.run([FAIRLANE, "worker", target], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert words in done.stderr
    assert "fairlane/cli" not in done.stderr
    assert "importlib" not in done.stderr
    assert done.stderr.count("\n") < 10
