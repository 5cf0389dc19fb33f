"""Brokers on each store, and the published clients that talk to them."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess, broker_process
from tests.postgres import PostgresServer
from tests.queen.environments import VERSIONS
from tests.queen.peer import Peer, running_peer

STORES = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A settings file with an encryption key.

    A queue with `encryptionEnabled`, which clients set, refuses pushes without one.
    """
    path = tmp_path_factory.mktemp("settings") / "fairlane.toml"
    path.write_text(f'encryption_key = "{secrets.token_hex(32)}"\n', encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session")
def sqlite_broker(tmp_path_factory: pytest.TempPathFactory, settings: str) -> Iterator[BrokerProcess]:
    with broker_process(f"sqlite:///{tmp_path_factory.mktemp('queen')}/queue.db", "--config", settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres_broker(postgres18: PostgresServer, settings: str) -> Iterator[BrokerProcess]:
    async def make_database() -> None:
        async with postgres18.connect() as admin:
            await admin.execute("CREATE DATABASE queen_clients")

    asyncio.run(make_database())  # it goes with the server
    with broker_process(postgres18.url("queen_clients"), "--config", settings) as broker:
        yield broker


@pytest.fixture(params=STORES)
def broker(request: pytest.FixtureRequest) -> BrokerProcess:
    broker: BrokerProcess = request.getfixturevalue(f"{request.param}_broker")
    return broker


@pytest.fixture(scope="session")
def peers() -> Iterator[dict[str, Peer]]:
    with running_peer(VERSIONS[0]) as oldest, running_peer(VERSIONS[1]) as newest:
        yield {peer.version: peer for peer in (oldest, newest)}


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """Return a queue name for this test, because all tests share the brokers.

    Has only characters that the clients encode correctly.
    """
    return re.sub(r"[^a-z0-9]+", "-", str(request.node.name)).strip("-")
