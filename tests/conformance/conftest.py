"""The harness, once for each store configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import ManualClock
from tests.conformance.backends import Backend, PostgresBackend, SqliteBackend
from tests.conformance.configurations import CONFIGURATIONS, Configuration
from tests.conformance.harness import Harness


@pytest.fixture(params=CONFIGURATIONS, ids=lambda configuration: configuration.name)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Not async: a server that starts here must not hold up the test's event loop."""
    configuration: Configuration = request.param
    if configuration.postgres is None:
        return SqliteBackend(tmp_path / "queue.db")
    return PostgresBackend(request.getfixturevalue(f"postgres{configuration.postgres}"), configuration)


@pytest.fixture
async def harness(backend: Backend) -> AsyncIterator[Harness]:
    await backend.make()
    deadlocks = backend.deadlocks()
    clock = ManualClock()
    harness = Harness(backend, clock, await backend.open(clock))
    try:
        yield harness
    finally:
        await harness.close()
    # A store repeats what was caught in one, so that only this shows it.
    assert backend.deadlocks()[len(deadlocks) :] == [], "locks are always taken in one order"
