"""`--reload`: restart a command when a source file changes."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import threading
from pathlib import Path

from fairlane.extras import MissingExtra

try:
    from watchfiles import PythonFilter, watch
except ModuleNotFoundError as error:
    raise MissingExtra("--reload", "worker", error.name) from None

_READY_MS = 100

log = logging.getLogger("fairlane.worker")


def run_with_reload(command: list[str], directory: Path) -> int:
    """Run the command, and restart it after each change in the directory, until a signal. Returns its exit code."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while True:
        watching = watch(
            directory,
            watch_filter=PythonFilter(),
            stop_event=stop,
            rust_timeout=_READY_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        with contextlib.closing(watching) as changes:
            next(changes, None)  # no later change is missed
            process = subprocess.Popen(command)  # noqa: S603  # our own command line
            any(changes)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        code = process.wait()
        if stop.is_set():
            return code
        log.info("source file changed; restarting")
