"""All rows of a queue in one cell, read apart from the code that moves them."""

from __future__ import annotations

import json
from typing import Any

from fairlane.store.cells.cluster import open_cell
from fairlane.store.cells.directory import Directory
from fairlane.store.cells.move_copy import EARLY, HIDDEN, LATE, LOG
from fairlane.store.postgres.store import PostgresStore

STAY = {
    *("migrations", "functions", "tenants", "purges", "catalogue", "catalogue_changes", "leadership", "flags"),
    *("identity", "cells", "placed", "moves", "moved", "moving", "arriving"),
    *("history_minutes", "history_hours", "schedules", "sources", "shadow_records", "shadow_copies", "staged"),
    *("specs", "declared_queues", "workers", "api_keys", "sessions", "audit_entries", "audit_head"),
    *("enqueue_grants", "sealed_queues", "traces", "trace_names", "stream_queries", "stream_state", "snoozes"),
}
"""Tables of the home, of a cell, and of what does not move."""
CONDITIONS = {LOG: EARLY["cursors"], **EARLY, **LATE, **HIDDEN}


async def rows_of(store: PostgresStore, queue_id: int) -> dict[str, list[Any]]:
    """Return the rows of a queue by table, without what may differ between cells."""
    found = {}
    for table, condition in CONDITIONS.items():
        where = condition.format(queue=queue_id)
        rows = await store.database.read(f"SELECT to_jsonb(x)::text FROM fairlane.{table} x WHERE {where}")
        found[table] = sorted((_plain(table, json.loads(text)) for (text,) in rows), key=json.dumps)
    return found


def _plain(table: str, row: dict[str, Any]) -> dict[str, Any]:
    if table == "queues":
        del row["tenant_id"], row["options"]["cell"]
    return row


async def cells_with(home: PostgresStore, name: str) -> list[int]:
    """Return the cells that have a queue of this name."""
    found = []
    for cell in await Directory(home).load():
        async with await open_cell(home, cell, connections=1) as store:
            if await store.queues.get("default", name) is not None:
                found.append(cell.number)
    return found
