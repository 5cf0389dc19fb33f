"""Families are complete: both dialects have the same methods."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from fairlane.store.families.query import statements
from fairlane.store.families.workers import Workers
from fairlane.store.postgres.query import numbered
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.query import QueryRunner
from fairlane.store.statements import for_sqlite

ALONE = {"never"}
_VALUE = re.compile(r"(?<![:\w]):([a-z_]+)")


def test_a_statement_takes_the_same_values_in_both_dialects() -> None:
    postgresql = statements("postgres")
    for name, text in statements("sqlite").items():
        differ = {*_VALUE.findall(text)} ^ {*_VALUE.findall(postgresql[name])}
        assert differ <= ALONE, f"{name}: the dialects differ"


def test_names_of_values_become_numbers_on_postgresql_and_casts_stay() -> None:
    text, names = numbered("SELECT :b::int, :a WHERE x > :b AND y = 'a:b'::text")
    assert (text, names) == ("SELECT $1::int, $2 WHERE x > $1 AND y = 'a:b'::text", ["b", "a"])


@pytest.mark.parametrize(
    ("postgres", "sqlite"),
    [
        ("SELECT q.id FROM fairlane.queues q", "SELECT q.id FROM queues q"),
        ("SELECT p.name::text, :ids::bigint[], :at::double precision", "SELECT p.name, :ids, :at"),
        ("WHERE at <= coalesce(:now, clock_timestamp())", "WHERE at <= :now"),
        ("at < :now - make_interval(secs => :seconds)", "at < :now - :seconds * 1000000"),
        ("q.id = ANY (:ids)", "q.id IN (SELECT value FROM json_each(:ids))"),
        (
            "coalesce(:since, '-infinity'), coalesce(:until, 'infinity')",
            "coalesce(:since, 0), coalesce(:until, :never)",
        ),
        ("k.ready_at = fairlane.never()", "k.ready_at = :never"),
        ("strpos(d.error, :error) > 0", "instr(d.error, :error) > 0"),
        ('ORDER BY g.name COLLATE "C"', "ORDER BY g.name"),
        ("WHERE q.id = :id ORDER BY q.id\nFOR UPDATE OF q", "WHERE q.id = :id ORDER BY q.id"),
    ],
)
def test_a_statement_that_is_written_once_is_translated_for_sqlite(postgres: str, sqlite: str) -> None:
    assert for_sqlite(postgres) == sqlite


async def test_a_transaction_that_awaits_anything_else_is_refused_and_undone() -> None:
    async def work(transaction: Any) -> None:
        await transaction.run("workers.beat", tenant="t", id="w", facts="{}")
        await asyncio.sleep(0)

    database = await Database.open(":memory:", clock=None)
    runner = QueryRunner(database)
    with pytest.raises(AssertionError, match="something else"):
        await runner.transact(work)
    assert await Workers(runner).all("t", seconds=60) == []
    await database.close()
