"""The state machines on each store. `FAIRLANE_STATEFUL=long` searches longer; a failure prints its seed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.postgres import PostgresServer
from tests.stateful.backends import Backend, BrokerLoop, SqliteBackend
from tests.stateful.delivery_machine import DeliveryMachine
from tests.stateful.machine import QueueMachine

LONG = os.environ.get("FAIRLANE_STATEFUL") == "long"
SEED = "FAIRLANE_STATEFUL_SEED"

# Shrinking a failure may take five minutes more.
pytestmark = pytest.mark.timeout(4 * 3600 if LONG else 900)


Machine = type[QueueMachine] | type[DeliveryMachine]


def search(kind: Machine, backend: Callable[[], Backend], *, examples: int) -> None:
    """Run that many examples of 50 steps, or as many as it takes to find and shrink a disagreement."""
    chosen = int(os.environ.get(SEED) or secrets.randbits(32))
    machine = seed(chosen)(lambda: kind(backend()))
    limits = settings(
        max_examples=examples * (25 if LONG else 1),
        stateful_step_count=100 if LONG else 50,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=limits)  # type: ignore[arg-type]
    except BaseException as error:
        error.add_note(f"{SEED}={chosen} repeats the search that found this.")
        raise


@contextlib.contextmanager
def database(server: PostgresServer) -> Iterator[str]:
    loop = asyncio.new_event_loop()
    made = server.fresh_database()
    url = loop.run_until_complete(made.__aenter__())
    try:
        yield url
    finally:
        loop.run_until_complete(made.__aexit__(None, None, None))
        loop.close()


@pytest.mark.parametrize(("kind", "examples"), [(QueueMachine, 90), (DeliveryMachine, 60)])
def test_sqlite_does_what_the_model_says(tmp_path: Path, kind: Machine, examples: int) -> None:
    search(kind, lambda: SqliteBackend(tmp_path), examples=examples)


@pytest.mark.parametrize(("kind", "examples"), [(QueueMachine, 26), (DeliveryMachine, 14)])
def test_postgres_does_what_the_model_says(postgres18: PostgresServer, kind: Machine, examples: int) -> None:
    with database(postgres18) as url, contextlib.closing(BrokerLoop(url)) as broker_loop:
        search(kind, lambda: Backend(broker_loop), examples=examples)
