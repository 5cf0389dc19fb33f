"""A consistent view of all rows of a store, and transactions that add rows to one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Protocol

QUEUE_TABLES: Final = (
    *("queues", "groups", "partitions", "skips", "segments", "message_keys", "deleted_ids", "trims", "traced"),
    *("cursors", "claims", "failures", "dead_letters", "results", "cancellations", "cancelled_ids"),
    "unique_keys",
    *("scheduled_segments", "scheduled_messages", "scheduled_keys", "effects"),
)
"""Tables with the rows of a queue, those first that others name."""
STORE_TABLES: Final = ("tenants", "schedules", "specs", "declared_queues", "api_keys")
"""Tables whose rows belong to no queue."""
_OWN_FILTERS: Final = {
    "queues": "id = {0}",
    "scheduled_messages": "id in (select id from fairlane.scheduled_segments where queue_id = {0})",
    **dict.fromkeys(("groups", "partitions", "dead_letters", "scheduled_segments"), "queue_id = {0}"),
}
_ORDERS: Final = {"segments": "partition_id, first_pos", "specs": "tenant, version"}


class Snapshot(Protocol):
    """A consistent view of a store. Rows have the columns and values of SQLite, on both stores."""

    def rows(self, table: str, queue_id: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield the rows of a table, or those of one queue."""
        ...


class ImportTarget(Snapshot, Protocol):
    """Transactions that add rows to a store. Rows that were added since the last commit are not stored yet."""

    async def reserve(self, table: str, count: int) -> list[int]:
        """Return new ids for rows of a table."""
        ...

    async def insert(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows, which all have the same columns."""
        ...

    async def commit(self) -> None:
        """Store the rows that were added, and begin another transaction."""
        ...


def condition(table: str, parameter: str) -> str:
    """Return the SQL condition for the rows of a queue."""
    of_partition = "partition_id in (select id from fairlane.partitions where queue_id = {0})"
    return _OWN_FILTERS.get(table, of_partition).format(parameter)


def order(table: str) -> str:
    return f" order by {_ORDERS[table]}" if table in _ORDERS else ""
