"""Two servers, and a store with its home on one and a second cell on the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from fairlane.store.cells.cluster import add_cell
from fairlane.store.postgres.store import PostgresStore
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer, running_server


@dataclass(frozen=True)
class Servers:
    """The servers of the two cells. Tests may stop them."""

    home: PostgresServer
    second: PostgresServer


@dataclass(frozen=True)
class Urls:
    home: str
    second: str


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with running_server(18) as home, running_server(16) as second:
        yield Servers(home, second)


@pytest.fixture
async def urls(servers: Servers, fresh_database: FreshDatabase) -> Urls:
    """Two empty databases."""
    return Urls(await fresh_database(servers.home), await fresh_database(servers.second))


@pytest.fixture
async def home(urls: Urls) -> AsyncIterator[PostgresStore]:
    """The home alone."""
    async with await PostgresStore.open(urls.home) as store:
        yield store


@pytest.fixture
async def cells(urls: Urls) -> Urls:
    """A store of two cells."""
    async with await PostgresStore.open(urls.home) as store:
        await add_cell(store, urls.second)
    return urls
