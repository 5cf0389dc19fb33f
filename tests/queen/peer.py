"""A published client in a process of its own, with an interpreter that does not have Fairlane."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.queen.environments import python

SCENARIOS = Path(__file__).with_name("scenarios")


@dataclass
class Peer:
    version: str
    process: subprocess.Popen[str]

    def play(self, module: str, *, url: str, queue: str) -> int:
        """Let the client run the scenarios of a module, and count them. The test fails if one of them does."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"module": module, "url": url, "queue": queue}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            pytest.fail(f"queen-mq {self.version} ended with {self.process.wait()}", pytrace=False)
        answer = json.loads(line)
        if answer["failures"]:
            failures = "\n".join(answer["failures"])
            pytest.fail(f"queen-mq {self.version}:\n{failures}\nIt said:\n{answer['said']}", pytrace=False)
        return int(answer["played"])


@contextlib.contextmanager
def running_peer(version: str) -> Iterator[Peer]:
    process = subprocess.Popen(
        [python(version), "-W", "ignore", SCENARIOS / "play.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    with process:
        try:
            yield Peer(version, process)
        finally:
            process.kill()  # nothing is unfinished between two scenarios
