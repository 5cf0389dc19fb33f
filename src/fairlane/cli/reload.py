"""Reload: starts a command again whenever a source file changes, for development."""

from __future__ import annotations

import logging
import signal
import subprocess
import time
from pathlib import Path

_LOOK_SECONDS = 0.3
_SKIPPED = {"node_modules", "__pycache__"}

log = logging.getLogger("fairlane.worker")


def run_again(command: list[str], directory: Path) -> int:
    """Run the command, and again after each change below the directory, until a signal; its last exit code."""
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    while True:
        seen = _sources(directory)
        process = subprocess.Popen(command)  # noqa: S603  # our own command, as it was given
        while not signals and _sources(directory) == seen:
            time.sleep(_LOOK_SECONDS)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        code = process.wait()
        if signals:
            return code
        log.info("source file changed; restarting")


def _sources(directory: Path) -> dict[Path, float]:
    found = {}
    stack = [directory]
    while stack:
        for path in stack.pop().iterdir():
            if path.is_dir():
                if not path.name.startswith(".") and path.name not in _SKIPPED and not path.is_symlink():
                    stack.append(path)
            elif path.suffix == ".py":
                found[path] = path.stat().st_mtime
    return found
