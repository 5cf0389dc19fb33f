"""A broker killed with -9 at each point at which it holds unfinished work. SQL alone checks the result."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from fairlane.broker.broker import Broker
from fairlane.broker.flags import PUSHES_PAUSED
from tests.conftest import FreshDatabase
from tests.faults.doomed import COUNT, POINTS
from tests.faults.producers import drained, stored
from tests.postgres import PostgresServer

LOST = ("sending", "appending")
"""Points before which nothing is durable and no caller is answered."""


async def killed(url: str, journal: Path, point: str, operations: list[str]) -> list[int]:
    """Return the numbers that a broker answered before it died at the point. Adds the operations that they became."""
    command = [sys.executable, "-m", "tests.faults.doomed", url, str(journal), point]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert process.returncode == -9, f"it did not come to {point!r}: {POINTS[point]}"
    lines = [line.split() for line in said.decode().splitlines()]
    operations += [id for _, *ids in lines for id in ids]
    return [int(number) for number, *_ in lines]


@pytest.mark.timeout(180)
async def test_a_broker_killed_at_any_point_leaves_each_message_once_and_in_order(
    server: PostgresServer, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """Each broker takes over the journal of the one killed before it, and continues until it dies itself."""
    url = await fresh_database(server)
    operations: list[str] = []
    answered = {point: await killed(url, tmp_path, point, operations) for point in POINTS}
    every = list(range(COUNT))
    early = {"sending", "stored", "appending", "appended"}
    assert answered == {point: every[:-1] if point in early else every for point in POINTS}
    async with Broker.open(url, journal=str(tmp_path)) as heir:
        await heir._engine.flags.set(PUSHES_PAUSED, False)
        await drained(heir)
        assert len(operations) == 6 + 6 * COUNT
        for id in operations:
            found = await heir.operations.get(UUID(id))
            assert (found.status, found.durability) == ("completed", "store"), (id, found)
    assert await stored(url) == {point: every[:-1] if point in LOST else every for point in POINTS}
