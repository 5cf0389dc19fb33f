"""The order of a lane with several broker processes: X is stored, Y is an operation, so Z must become one."""

from __future__ import annotations

from itertools import count
from typing import Any

import asyncpg
import pytest

from fairlane.broker.admission import Limit
from fairlane.broker.broker import Broker
from fairlane.store.contract.operations import BacklogClaim
from tests.e2e.conftest import StartBroker, connected
from tests.until import until

STORED = (
    "SELECT data #>> '{}' FROM fairlane.messages WHERE queue = 'orders' AND partition = 'Default' ORDER BY position"
)


async def wait_and_hold(busy: Broker, expected: list[str]) -> BacklogClaim:
    """Push until one push becomes an operation. A broker may apply some of them faster."""
    await busy._engine.operation_drain.stop()
    busy._engine.admission.limits = {"push": Limit(-1.0, 10_000)}
    for number in count():
        assert (await busy.push("orders", f"y{number}")).status == "buffered"
        expected.append(f"y{number}")
        if claimed := await busy._engine.store.operations.claim("the test"):
            return claimed[0].claim
    raise AssertionError


@pytest.mark.parametrize("brokers", [1, 2])
async def test_z_follows_y_at_every_broker(database_url: str, start: StartBroker, brokers: int) -> None:
    running = [await start(database_url) for _ in range(brokers)]
    connection: asyncpg.Connection[Any] = await asyncpg.connect(database_url)
    expected = ["x"]

    async def applied() -> bool:
        return not await connection.fetchval("SELECT count(*) FROM fairlane.operation_backlogs")

    try:
        async with connected(running[0]) as first, connected(running[-1]) as last, Broker.open(database_url) as busy:
            await first.push("orders", "x")
            claim = await wait_and_hold(busy, expected)
            for wire in (last, first):
                body = {"items": [{"queue": "orders", "payload": f"z{len(expected)}"}]}
                [z] = (await wire.post("/api/v1/push", body=body)).ok(202)
                assert (z["status"], z["reason"]) == ("buffered", "maintaining_order")
                expected.append(f"z{len(expected)}")
            await last.push("orders", "elsewhere", partition="free")
            assert await busy._engine.store.operations.postpone([claim], delay_ms=0, error="let go") == 1
            await until(applied)
            await last.push("orders", "after")
        rows = await connection.fetch(STORED)
    finally:
        await connection.close()
    assert [row[0] for row in rows] == [*expected, "after"]
