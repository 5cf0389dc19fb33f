"""A rolling upgrade: brokers of the previous release and of the next one serve the same clients from one store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlane import Client
from tests.broker_process import BrokerProcess
from tests.conftest import FreshDatabase
from tests.faults.producers import stored
from tests.faults.traffic import Traffic
from tests.postgres import PostgresServer
from tests.upgrade.releases import next_release, previous_release, version_of

pytestmark = [pytest.mark.may_block_loop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return previous_release(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return next_release(tmp_path_factory.mktemp("new"))


@pytest.fixture
async def url(postgres18: PostgresServer, fresh_database: FreshDatabase) -> str:
    return await fresh_database(postgres18)


class Host:
    """A machine that runs one broker of some release, always at the same address."""

    def __init__(self, store: str, data_dir: Path) -> None:
        self._store, self._data_dir = store, data_dir
        self.broker: BrokerProcess | None = None

    @property
    def url(self) -> str:
        assert self.broker is not None
        return self.broker.url

    def run(self, packages: Path) -> str:
        """Replace the broker by one of this release. Returns what it logged until it listened."""
        before = self.broker
        self.stop()
        self.broker = BrokerProcess(self._store, data_dir=self._data_dir, environment={"PYTHONPATH": str(packages)})
        self.broker.url = before.url if before else ""
        self.broker.start()
        log = "".join(self.broker.log)
        assert f"fairlane {version_of(packages)} on " in log
        return log

    def stop(self) -> None:
        if self.broker is not None and self.broker.running:
            assert self.broker.stop() == 0


@pytest.fixture
def host(url: str, tmp_path: Path) -> Iterator[Callable[[], Host]]:
    with contextlib.ExitStack() as stack:

        def make() -> Host:
            made = Host(url, tmp_path / str(len(hosts)))
            hosts.append(made)
            stack.callback(made.stop)
            return made

        hosts: list[Host] = []
        yield make


async def test_brokers_are_upgraded_one_by_one_under_load_and_back(
    url: str, old: Path, new: Path, host: Callable[[], Host]
) -> None:
    first, second = host(), host()
    for one in (first, second):
        assert "uses the store, too" not in one.run(old)
    async with Client([first.url, second.url]) as client:
        traffic = Traffic(client)
        await traffic.progress()
        assert f"Fairlane {version_of(old)} uses the store, too" in first.run(new)
        await traffic.progress()
        # A broker that is not upgraded yet may start again, and changes nothing.
        assert f"Fairlane {version_of(new)} uses the store, too" in second.run(old)
        await traffic.progress()
        second.run(new)
        await traffic.progress()
        for one in (first, second):
            one.run(old)
            await traffic.progress()
        await traffic.finish()
    assert await stored(url) == traffic.accepted
