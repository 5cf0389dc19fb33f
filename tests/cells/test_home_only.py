"""Features of the home only: refused for queues of other cells, until these are moved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from fairlane.store.cells.move import QueueMover
from fairlane.store.opening import open_store
from fairlane.store.postgres.store import PostgresStore
from tests.cells.conftest import Urls
from tests.http.wire import Wire, serving

COMPLETE = "SELECT fairlane.complete($1, $2, $3)"
TO_HOME = "this queue is in cell 1; move it: `fairlane cluster move-queue QUEUE --to 0`"


@pytest.fixture
async def wire(cells: Urls) -> AsyncIterator[Wire]:
    async with serving(await open_store(cells.home)) as wire:
        await wire.configure("orders", cell="1")
        await wire.push("orders", 1)
        yield wire


async def popped(wire: Wire) -> dict[str, Any]:
    [one] = (await wire.get("/api/v1/pop/queue/orders", batch=1)).ok()["messages"]
    return dict(one)


async def test_trace_notes(wire: Wire, home: PostgresStore) -> None:
    one = await popped(wire)
    note = {"partitionId": one["partitionId"], "transactionId": one["transactionId"], "data": {"text": "here"}}
    answer = await wire.post("/api/v1/traces", body=note)
    assert answer.status == 400
    assert f"trace notes work with queues of the home only, and {TO_HOME}" in answer.body.decode()
    assert (await wire.get("/api/v1/traces", one["partitionId"], one["transactionId"])).ok()["traces"] == []
    await QueueMover(home).move("default", "orders", 0)
    assert (await wire.post("/api/v1/traces", body=note)).status == 201
    assert len((await wire.get("/api/v1/traces", one["partitionId"], one["transactionId"])).ok()["traces"]) == 1


async def test_streams(wire: Wire, home: PostgresStore) -> None:
    await wire.configure("totals", cell="0")
    await wire.push("totals", 1)
    for queues in ({"source_queue": "orders"}, {"source_queue": "totals", "sink_queue": "orders"}):
        answer = await wire.post("/streams/v1/queries", body={"name": "sums", "config_hash": "one", **queues})
        assert answer.status == 400
        assert f"streams work with queues of the home only, and {TO_HOME}" in answer.body.decode()
    query = {"name": "sums", "config_hash": "one", "source_queue": "totals"}
    found = (await wire.post("/streams/v1/queries", body=query)).ok()["query_id"]
    lane = {"query_id": found, "partition_id": (await popped(wire))["partitionId"]}
    ops = [{"type": "upsert", "key": "a", "value": 1}]
    for path, body in (
        ("/streams/v1/cycle", {**lane, "state_ops": ops}),
        ("/streams/v1/state/get", {**lane, "keys": []}),
    ):
        answer = await wire.post(path, body=body)
        assert answer.status == 400, answer
        assert "streams work with queues of the home only" in answer.body.decode()
    await QueueMover(home).move("default", "orders", 0)
    query = {"name": "others", "config_hash": "one", "source_queue": "orders"}
    assert (await wire.post("/streams/v1/queries", body=query)).status == 200


async def test_complete(wire: Wire, home: PostgresStore, cells: Urls) -> None:
    one = await popped(wire)
    app = await asyncpg.connect(cells.home)
    try:
        words = one["leaseId"], one["partitionId"], 0
        with pytest.raises(asyncpg.FeatureNotSupportedError, match="is in another database") as raised:
            await app.execute(COMPLETE, *words)
        assert "move-queue QUEUE --to 0" in str(raised.value.hint)
        await QueueMover(home).move("default", "orders", 0)
        await app.execute(COMPLETE, *words)
        assert not (await wire.get("/api/v1/pop/queue/orders", batch=1)).body
    finally:
        await app.close()
