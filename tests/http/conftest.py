"""The wire API over a real store: an SQLite file, and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.backends import Backend, PostgresBackend, SqliteBackend
from tests.conformance.configurations import Configuration
from tests.http.wire import Wire, serving


@pytest.fixture(params=["sqlite", "postgres18"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Not async: a server that starts here must not hold up the test's event loop."""
    if request.param == "sqlite":
        return SqliteBackend(tmp_path / "queue.db")
    return PostgresBackend(request.getfixturevalue("postgres18"), Configuration("http", postgres=18))


@pytest.fixture
async def wire(backend: Backend) -> AsyncIterator[Wire]:
    await backend.make()
    async with serving(await backend.open(None)) as wire:
        yield wire
