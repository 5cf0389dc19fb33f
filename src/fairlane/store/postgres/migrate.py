"""Migration of the schema to the version of this code: forward only, one migrator at a time, all or nothing."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

import asyncpg

from fairlane.model.ids import first_id
from fairlane.store import schema
from fairlane.store.statements import read

_PACKAGE = "fairlane.store.postgres"
_WITH_CELL = ("queues", "groups", "partitions")
"""Tables whose ids say in which cell a row was created."""
_LOCK = 0x6661_6972  # an arbitrary key for an advisory lock: "fair"
_APPLIED = "INSERT INTO fairlane.migrations (version, name, hash, applied_at) VALUES ($1, $2, $3, clock_timestamp())"


async def migrate(connection: asyncpg.Connection[Any], cell: int = 0) -> None:
    """Apply the missing migrations. Raises StoreUnsafe if this code cannot upgrade the schema.

    In a new schema, the ids of queues, groups and partitions begin where those of `cell` begin.

    Functions and views are replaced after a migration, or when their text differs from the installed one. A migration
    first drops a function whose arguments or result change, because PostgreSQL would keep both, and a view over a
    column that changes.
    """
    known = schema.load(_PACKAGE)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if await connection.fetchval("SELECT to_regclass('fairlane.migrations')") is None:
            await connection.execute(known.text)
            for table in _WITH_CELL if cell else ():
                await connection.execute(f"ALTER TABLE fairlane.{table} ALTER COLUMN id RESTART WITH {first_id(cell)}")
            await connection.execute(_APPLIED, known.version, "schema", known.hash)
        # As a document, because the table of an unreleased version may lack the hash.
        applied = await connection.fetch(
            "SELECT m.version, to_jsonb(m) ->> 'hash' FROM fairlane.migrations m ORDER BY m.version"
        )
        missing = known.missing([(row[0], row[1]) for row in applied], "the database")
        for migration in missing:
            await connection.execute(migration.text)
            await connection.execute(_APPLIED, migration.version, migration.name, None)
        await _install_functions(connection, anew=bool(missing))


@cache
def functions() -> list[str]:
    """Return the text of all function files, and of the views."""
    directory = files(_PACKAGE).joinpath("functions")
    names = sorted(file.name for file in directory.iterdir() if file.name.endswith(".sql"))
    return [*(read(_PACKAGE, f"functions/{name}") for name in names), read(_PACKAGE, "views.sql")]


async def _install_functions(connection: asyncpg.Connection[Any], *, anew: bool) -> None:
    texts = functions()
    text_hash = hashlib.sha256("".join(texts).encode()).hexdigest()
    if not anew and await connection.fetchval("SELECT hash FROM fairlane.functions") == text_hash:
        return
    # A function may be created before the functions that it calls.
    await connection.execute("SET LOCAL check_function_bodies = off")
    for text in texts:
        await connection.execute(text)
    await connection.execute(
        "INSERT INTO fairlane.functions (hash) VALUES ($1) ON CONFLICT (one) DO UPDATE SET hash = excluded.hash",
        text_hash,
    )
