"""Fixtures for all tests. A server starts when the first test of a worker process asks for it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import pytest

from tests.postgres import MAJORS, PostgresServer, running_server

pytest_plugins = ["tests.tiers", "tests.budgets", "tests.conformance.parity", "tests.guards"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As where a shell without job control started the run in the background. What is ignored stays so in child
    # processes, and some tests interrupt theirs; a handler does not, and this one leaves the run itself as it was.
    signal.signal(signal.SIGINT, lambda *_: None)


WAITING = ("tests/queen/test_own_suite.py", "tests/history/", "tests/faults/", "tests/queen/", "tests/e2e/")
"""Tests that mostly wait, longest first. One worker begins with them while the others keep the cores busy."""
LONG = ("tests/stateful/", "tests/browser/")
"""Tests that work for long. A second and a third worker begin with them, so that none is left alone with one at the
end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-update", action="store_true", help="write the outputs in tests/cli/golden anew")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def order(item: pytest.Item) -> int:
        return next((n for n, path in enumerate(WAITING) if item.nodeid.startswith(path)), len(WAITING))

    rest = sorted((item for item in items if not item.nodeid.startswith(LONG)), key=order)
    # The workers get equal shares of this list, and take from each other's ends when theirs is done.
    share = len(items) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    for number, path in enumerate(LONG, 1):
        rest[number * share : number * share] = [item for item in items if item.nodeid.startswith(path)]
    items[:] = rest


@pytest.fixture
def only_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the periodic repeats of long polls, so that only a wake-up or a due lane makes them pop again.

    A test of wake-ups then needs no time limit.
    """
    monkeypatch.setattr("fairlane.broker.pop.FLOOR_SECONDS", 3600.0)
    monkeypatch.setattr("fairlane.broker.pop_any.FLOOR_SECONDS", 3600.0)
    monkeypatch.setattr("fairlane.broker.pop_target.FLOOR_SECONDS", 3600.0)


class FreshDatabase(Protocol):
    async def __call__(self, server: PostgresServer, *, template: str = "template1") -> str: ...


@pytest.fixture(scope="session")
def postgres16() -> Iterator[PostgresServer]:
    with running_server(16) as server:
        yield server


@pytest.fixture(scope="session")
def postgres18() -> Iterator[PostgresServer]:
    with running_server(18) as server:
        yield server


@pytest.fixture(params=MAJORS, ids=lambda major: f"postgres{major}")
def postgres(request: pytest.FixtureRequest) -> PostgresServer:
    """Runs the test once on each supported server."""
    server: PostgresServer = request.getfixturevalue(f"postgres{request.param}")
    return server


@pytest.fixture
async def fresh_database() -> AsyncIterator[FreshDatabase]:
    """Makes new databases, `await fresh_database(server, template=...)`, and drops them after the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(server: PostgresServer, *, template: str = "template1") -> str:
            return await stack.enter_async_context(server.fresh_database(template=template))

        yield make
