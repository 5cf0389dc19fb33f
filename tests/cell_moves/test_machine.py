"""The state machine of tests/cell_moves/machine.py on two servers. `FAIRLANE_STATEFUL=long` searches longer."""

from __future__ import annotations

import asyncio
import os
import secrets

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from fairlane.store.cells.cluster import add_cell
from fairlane.store.postgres.store import PostgresStore
from tests.cell_moves.machine import CellsMachine, World
from tests.cells.conftest import Servers, Urls
from tests.stateful.test_stateful import database

LONG = os.environ.get("FAIRLANE_STATEFUL") == "long"
SEED = "FAIRLANE_STATEFUL_SEED"

pytestmark = pytest.mark.timeout(4 * 3600 if LONG else 900)


async def join(urls: Urls) -> None:
    async with await PostgresStore.open(urls.home) as home:
        await add_cell(home, urls.second)


def test_queues_keep_their_messages_while_they_move_and_directories_are_old(servers: Servers) -> None:
    chosen = int(os.environ.get(SEED) or secrets.randbits(32))
    with database(servers.home) as home, database(servers.second) as second:
        urls = Urls(home, second)
        asyncio.run(join(urls))
        CellsMachine.world = World(urls)
        limits = settings(
            max_examples=200 if LONG else 8,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            report_multiple_bugs=False,
            phases=[Phase.generate],  # each example takes long
            suppress_health_check=list(HealthCheck),
        )
        try:
            run_state_machine_as_test(seed(chosen)(CellsMachine), settings=limits)
        except BaseException as error:
            error.add_note(f"{SEED}={chosen} repeats the search that found this.")
            raise
        finally:
            CellsMachine.world.close()
