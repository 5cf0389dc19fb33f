"""Known ids are found by an index lookup, whose cost does not grow with the number of ids."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from fairlane.broker.broker import Broker
from fairlane.model.ids import uuid7
from fairlane.model.message import PushItem
from fairlane.store.postgres.connection import Database
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

KNOWN = 3_000
BLOCKS_MAX = 500
"""Maximum cost of one call: less than one per id that the partition has."""


@pytest.mark.parametrize("ids", [[str(uuid4())], [str(uuid4()), uuid7()]], ids=["no UUIDv7", "one of each"])
async def test_an_id_costs_no_more_the_more_a_partition_knows(
    ids: list[str], postgres18: PostgresServer, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[Any, ...]] = []
    write = Database.write

    async def watched(database: Database, sql: str, *values: Any) -> Any:
        if "fairlane.push(" in sql:
            called.append((database, sql, *values))
        return await write(database, sql, *values)

    monkeypatch.setattr(Database, "write", watched)
    async with Broker.open(await fresh_database(postgres18)) as broker:
        for _ in range(KNOWN // 500):
            await broker.push_many([_item(f"order {uuid4()}") for _ in range(500)])
        await broker.push_many([_item(id) for id in ids])
        database, sql, *values = called[-1]
        hits = []
        for _ in range(10):  # a connection that never made the call reads the catalogue for it
            [[plan]] = await write(database, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *values)
            [found] = msgspec.json.decode(plan)
            hits.append(found["Plan"]["Shared Hit Blocks"])
    assert min(hits) < BLOCKS_MAX, hits


def _item(transaction_id: str) -> PushItem:
    return PushItem(queue="orders", payload=b"1", partition="only", transaction_id=transaction_id)
