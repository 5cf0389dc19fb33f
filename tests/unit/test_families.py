"""Small families are written once: what one dialect can be asked for, the other can."""

from __future__ import annotations

import asyncio
import re

import pytest

from fairlane.store.families.port import statements
from fairlane.store.families.workers import Workers
from fairlane.store.postgres.port import numbered
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.port import Port, Transaction

ALONE = {"shard", "shards", "before_shard", "never"}
_VALUE = re.compile(r"(?<![:\w]):([a-z_]+)")


def test_a_statement_takes_the_same_values_in_both_dialects() -> None:
    postgresql = statements("postgres")
    for name, text in statements("sqlite").items():
        differ = {*_VALUE.findall(text)} ^ {*_VALUE.findall(postgresql[name])}
        assert differ <= ALONE, f"{name}: SQLite has one shard, and nothing else tells them apart"


def test_names_of_values_become_numbers_on_postgresql_and_casts_stay() -> None:
    text, names = numbered("SELECT :b::int, :a WHERE x > :b AND y = 'a:b'::text")
    assert (text, names) == ("SELECT $1::int, $2 WHERE x > $1 AND y = 'a:b'::text", ["b", "a"])


async def test_a_transaction_that_awaits_anything_else_is_refused_and_undone() -> None:
    async def work(transaction: Transaction) -> None:
        await transaction.run("workers.beat", tenant="t", id="w", facts="{}")
        await asyncio.sleep(0)

    database = await Database.open(":memory:", clock=None)
    port = Port(database)
    with pytest.raises(AssertionError, match="something else"):
        await port.transact(work)
    assert await Workers(port).list("t", seconds=60) == []
    await database.close()
