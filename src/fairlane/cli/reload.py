"""Starting a command again whenever a source file changes, for development."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import threading
from pathlib import Path

from watchfiles import PythonFilter, watch

_READY_MS = 100

log = logging.getLogger("fairlane.worker")


def run_again(command: list[str], directory: Path) -> int:
    """Run the command, and again after each change below the directory, until a signal; its last exit code."""
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
            next(changes, None)  # from here on no change is missed
            process = subprocess.Popen(command)  # noqa: S603  # our own command, as it was given
            any(changes)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        code = process.wait()
        if stop.is_set():
            return code
        log.info("source file changed; restarting")
