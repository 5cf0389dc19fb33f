"""Runs real commands against a real broker, in their own processes or, for speed, in this one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlane.broker.broker import Broker
from fairlane.cli import main
from fairlane.client import Client
from fairlane.http.app import HttpApp
from fairlane.http.server import open_sockets
from fairlane.testing import FrozenClock
from tests.broker_process import FAIRLANE, BrokerProcess, broker_process
from tests.cli.scenarios import SPEC

FILES = {
    "orders.jsonl": '{"total": 1}\n{"total": 2}\n',
    "shop.fairlane": SPEC,
    "empty.fairlane": "app Empty {}\n",
    "loose.fairlane": "app Shop { queue   Orders {} }\n",
    "wrong.fairlane": "app Shop { queue Orders { max_depht: 7 } }\n",
    "body.json": '{"id":"o-1","total":42}',
}


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

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
    """The `fairlane` command, with the broker's URL in its environment."""

    url: str

    def __call__(self, *arguments: str, input: str = "") -> Ran:
        """Run a command in this process, because starting one takes longer than most commands."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FAIRLANE_SERVER", self.url)
            return Ran(*in_process(arguments, input))

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
    """Return the name of a queue for this test. All tests share the broker."""
    return str(request.node.name)


def in_process(words: Sequence[str], input: str = "") -> tuple[int, str, str]:
    """Run a command in this process. Returns its exit code, stdout and stderr."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(input.encode()), "utf-8"))
        code = main.run(words)
    out.seek(0)
    return code, out.read(), err.getvalue()


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimpleNamespace]:
    """A directory with files, and a broker whose URL is in the environment."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    clock = FrozenClock(datetime(2020, 1, 31, 12, tzinfo=UTC))
    store, journal = f"sqlite:///{tmp_path}/queue.db", str(tmp_path / "journal")
    async with Broker.open(store, clock=clock, journal=journal, retention_interval=0) as broker:
        sockets = open_sockets("127.0.0.1", 0)
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        server = HttpApp(broker).serve()
        await server.listen(sockets)
        for name, value in {"SERVER": url, "SECRET_X": "x"}.items():
            monkeypatch.setenv(f"FAIRLANE_{name}", value)
        for name, value in {"COLUMNS": "100", "LOGNAME": "operator", "SHOP_SECRET": "s" * 32}.items():
            monkeypatch.setenv(name, value)
        async with Client(url) as client:
            yield SimpleNamespace(client=client, clock=clock, broker=broker)
        await server.close(grace_seconds=1.0)
