"""The test harness, once for each store configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.clock import ManualClock
from tests.conformance.backends import Backend, CellsBackend, PostgresBackend, SqliteBackend
from tests.conformance.citus import CitusBackend
from tests.conformance.configurations import CONFIGURATIONS, Configuration
from tests.conformance.harness import Harness
from tests.conformance.placement import places
from tests.conformance.sessions import KeptSessions
from tests.guards import LoopWatch, guarded_loop


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all these tests on one loop, so that connections to the server can be reused from test to test."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(loop_scope="session")
async def loop_guard(loop_watch: LoopWatch) -> AsyncIterator[None]:
    """The guard of all tests, on the loop that these tests share."""
    async with guarded_loop(loop_watch):
        yield


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def kept_sessions() -> AsyncIterator[KeptSessions]:
    kept = KeptSessions()
    yield kept
    await kept.close()


@pytest.fixture(params=CONFIGURATIONS, ids=lambda configuration: configuration.name)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Not async: a server that starts here must not hold up the test's event loop."""
    configuration: Configuration = request.param
    if configuration.postgres is None and not configuration.citus:
        return SqliteBackend(tmp_path / "queue.db")
    name: str = getattr(request.node, "originalname", request.node.name)
    if configuration.citus:
        return CitusBackend(configuration, places(request.path.stem, name, citus=True))
    if configuration.second is not None:
        servers = [
            request.getfixturevalue(f"postgres{major}") for major in (configuration.postgres, configuration.second)
        ]
        return CellsBackend(servers, configuration, places(request.path.stem, name, citus=False))
    return PostgresBackend(request.getfixturevalue(f"postgres{configuration.postgres}"), configuration)


@pytest_asyncio.fixture(loop_scope="session")
async def harness(
    backend: Backend, kept_sessions: KeptSessions, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Harness]:
    monkeypatch.setattr("fairlane.store.postgres.store.open_database", kept_sessions.open_database)
    await backend.make()
    deadlocks = backend.deadlocks()
    clock = ManualClock()
    harness = Harness(backend, clock, await backend.open(clock))
    try:
        yield harness
    finally:
        await harness.close()
    # The store retries after a deadlock, so nothing else would show it.
    assert backend.deadlocks()[len(deadlocks) :] == [], "locks are always taken in one order"
