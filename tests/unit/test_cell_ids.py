"""Ids of queues, groups and partitions, which name the cell that they were created in."""

from __future__ import annotations

import pytest

from fairlane.errors import InvalidRequest
from fairlane.model.ids import CELLS_MAX, PartitionId, cell_of, first_id
from fairlane.store.postgres.driver import SCHEMA, in_schema
from fairlane.store.postgres.store import PostgresStore


@pytest.mark.parametrize("cell", [0, 1, CELLS_MAX - 1])
def test_an_id_names_its_cell_and_stays_exact_in_javascript(cell: int) -> None:
    last = first_id(cell) + 2**45 - 2
    for id in (first_id(cell), last):
        partition = PartitionId.of(id)
        assert (cell_of(id), partition.cell, partition.id) == (cell, cell, id)
        assert PartitionId.parse(str(partition)) == partition
    assert last < 2**53


def test_ids_of_cell_0_are_the_numbers_alone() -> None:
    assert (PartitionId(0, 17).id, PartitionId.of(17), first_id(0)) == (17, PartitionId(0, 17), 1)


@pytest.mark.parametrize("partition", [PartitionId(CELLS_MAX, 1), PartitionId(1, 2**45), PartitionId(2**31 - 1, 1)])
def test_a_partition_that_no_cell_can_have_has_no_id_in_a_store(partition: PartitionId) -> None:
    assert partition.id == -1


def test_statements_name_the_schema_of_their_store() -> None:
    statement = "SELECT fairlane.never(), x.fairlane FROM fairlane.queues x WHERE x.application_name = 'fairlane'"
    assert in_schema(statement, SCHEMA) == statement
    assert in_schema(statement, "fairlane_1") == (
        "SELECT fairlane_1.never(), x.fairlane FROM fairlane_1.queues x WHERE x.application_name = 'fairlane'"
    )
    assert in_schema("CREATE SCHEMA IF NOT EXISTS fairlane;", "fairlane_1").endswith("EXISTS fairlane_1;")


@pytest.mark.parametrize("schema", ["", "Fairlane", "fair lane", "a.b", 'x"; DROP', "1st", "a" * 60])
async def test_a_schema_that_needs_quotes_is_refused_before_anything_is_opened(schema: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be a schema"):
        await PostgresStore.open("postgresql://nowhere.invalid/x", schema=schema)
