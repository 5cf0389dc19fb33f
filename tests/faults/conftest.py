from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Run a server for one module, whose tests may stop it."""
    with running_server(18) as server:
        yield server


@pytest.fixture
async def url(server: PostgresServer, fresh_database: FreshDatabase) -> str:
    return await fresh_database(server)
