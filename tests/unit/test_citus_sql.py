"""Functions and statements as cells on Citus get them. `FAIRLANE_TEST_CITUS` runs the conformance tests there."""

from __future__ import annotations

import re

import asyncpg
import pytest

from fairlane.model.ids import CELLS_MAX, cell_of, first_id
from fairlane.store.postgres.citus_sql import function_text, own_functions, statement
from fairlane.store.postgres.connection import connect
from fairlane.store.postgres.migrate import functions, migrate
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer


async def test_the_functions_for_citus_are_valid_and_have_the_same_results(
    postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    connection = await connect(await fresh_database(postgres18))
    try:
        await migrate(connection)
        for text in (*functions(), own_functions(3)):
            await connection.execute(function_text(text))  # PostgreSQL refuses another result, and parses the bodies
        left = await connection.fetch(
            "SELECT p.proname, p.prosrc FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang"
            " WHERE p.pronamespace = 'fairlane'::regnamespace AND l.lanname = 'sql'"
        )
        reads = re.compile(r"(?:FROM|JOIN|INTO|UPDATE) fairlane\.\w+(?![\w(])")
        assert [row["proname"] for row in left if reads.search(row["prosrc"])] == []
        settings = await connection.fetch(
            "SELECT p.proname FROM pg_proc p WHERE 'plan_cache_mode=force_generic_plan' = ANY (p.proconfig)"
        )
        assert settings == []
    finally:
        await connection.close()


@pytest.mark.parametrize("cell", [1, CELLS_MAX - 1])
async def test_ids_on_citus_tell_the_cell_and_differ_between_nodes(
    cell: int, postgres18: PostgresServer, fresh_database: FreshDatabase
) -> None:
    connection = await asyncpg.connect(await fresh_database(postgres18))
    try:
        await connection.execute("CREATE SCHEMA fairlane")
        await connection.execute(own_functions(cell))
        numbers = [node << 48 | count for node in (0, 1, 511) for count in (1, 2, (1 << 36) - 1)]
        ids = [await connection.fetchval("SELECT fairlane.new_id($1)", number) for number in numbers]
    finally:
        await connection.close()
    assert {cell_of(id) for id in ids} == {cell}
    assert len(set(ids)) == len(ids)
    assert min(ids) == first_id(cell)


def test_times_are_computed_once_before_a_change() -> None:
    assert statement("UPDATE fairlane.x AS x SET at = coalesce($1, clock_timestamp()) WHERE x.id = $2") == (
        "UPDATE fairlane.x AS x SET at = fairlane.now_or($1) WHERE x.id = $2"
    )
    assert statement("UPDATE fairlane.x AS x SET at = coalesce(x.at, coalesce($1, clock_timestamp()))") == (
        "UPDATE fairlane.x AS x SET at = least(x.at, fairlane.now_or($1))"
    )
