"""The real command, in processes of its own, against a real broker."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.broker_process import FAIRLANE, BrokerProcess, broker_process


@dataclass(frozen=True)
class Ran:
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Command:
    """`fairlane ...` with the broker's URL in its environment."""

    url: str

    def __call__(self, *arguments: str, input: str = "") -> Ran:
        done = subprocess.run(
            [FAIRLANE, *arguments], input=input, capture_output=True, text=True, env=self.environment, timeout=60
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [FAIRLANE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        )

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"FAIRLANE_SERVER": self.url, "NO_COLOR": "1"}


@pytest.fixture(scope="session")
def cli_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(f"sqlite:///{tmp_path_factory.mktemp('broker')}/queue.db") as broker:
        yield broker


@pytest.fixture
def fairlane(cli_broker: BrokerProcess) -> Command:
    return Command(cli_broker.url)


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of this test's own: all share the broker."""
    return str(request.node.name)
