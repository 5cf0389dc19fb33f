"""The harness, once for each store configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import ManualClock
from tests.conformance.configurations import CONFIGURATIONS, Configuration
from tests.conformance.harness import Harness
from tests.conformance.places import Place, PostgresPlace, SqlitePlace


@pytest.fixture(params=CONFIGURATIONS, ids=lambda configuration: configuration.name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Not async: a server that starts here must not hold up the test's event loop."""
    configuration: Configuration = request.param
    if configuration.postgres is None:
        return SqlitePlace(tmp_path / "queue.db")
    return PostgresPlace(request.getfixturevalue(f"postgres{configuration.postgres}"), configuration)


@pytest.fixture
async def harness(place: Place) -> AsyncIterator[Harness]:
    await place.make()
    deadlocks = place.deadlocks()
    clock = ManualClock()
    harness = Harness(place, clock, await place.open(clock))
    try:
        yield harness
    finally:
        await harness.close()
    # A store repeats what was caught in one, so that only this shows it.
    assert place.deadlocks()[len(deadlocks) :] == [], "locks are always taken in one order"
