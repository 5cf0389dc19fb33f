"""The wire API over a real store: an SQLite file, and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.configurations import Configuration
from tests.conformance.places import Place, PostgresPlace, SqlitePlace
from tests.http.wire import Wire, serving


@pytest.fixture(params=["sqlite", "postgres18"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Not async: a server that starts here must not hold up the test's event loop."""
    if request.param == "sqlite":
        return SqlitePlace(tmp_path / "queue.db")
    return PostgresPlace(request.getfixturevalue("postgres18"), Configuration("http", postgres=18))


@pytest.fixture
async def wire(place: Place) -> AsyncIterator[Wire]:
    await place.make()
    async with serving(await place.open(None)) as wire:
        yield wire
