"""Worker processes, and the journal of what their handlers did."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.broker_process import FAIRLANE

ROOT = Path(__file__).parents[2]


class Note(NamedTuple):
    what: str
    job: int
    attempt: int
    pid: int


class Workshop:
    """Starts worker processes of `tests.worker.jobs` on one queue."""

    def __init__(self, directory: Path, queue: str, server: str) -> None:
        self.queue = queue
        self._server = server
        self._directory = directory
        self._journal = directory / "journal"
        self._journal.touch()
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, lease_seconds: int = 60) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        environment |= {
            "JOURNAL": str(self._journal),
            "QUEUE": self.queue,
            "LEASE_SECONDS": str(lease_seconds),
            "FAIRLANE_SERVER": self._server,
        }
        log = (self._directory / f"worker-{len(self.processes)}.log").open("w")
        process = subprocess.Popen(
            [FAIRLANE, "worker", "tests.worker.jobs:app", *arguments],
            cwd=ROOT,
            env=environment,
            stderr=log,
            text=True,
        )
        log.close()
        self.processes.append(process)
        return process

    def log(self, process: subprocess.Popen[str]) -> str:
        return (self._directory / f"worker-{self.processes.index(process)}.log").read_text()

    def notes(self, what: str | None = None) -> list[Note]:
        # A reader can see the first half of a line while a worker appends it.
        whole_lines, _, _ = self._journal.read_text().rpartition("\n")
        found = []
        for line in whole_lines.splitlines():
            kind, job, attempt, pid = line.split()
            if what in (None, kind):
                found.append(Note(kind, int(job), int(attempt), int(pid)))
        return found

    def done(self) -> Counter[int]:
        return Counter(note.job for note in self.notes("done"))


@contextmanager
def workshop(directory: Path, queue: str, server: str) -> Iterator[Workshop]:
    found = Workshop(directory, queue, server)
    try:
        yield found
    finally:
        for process in found.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
