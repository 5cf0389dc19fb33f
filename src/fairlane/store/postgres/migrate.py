"""Migration of the schema to the version of this code: forward only, one migrator at a time, all or nothing."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

import asyncpg

from fairlane.store import schema
from fairlane.store.postgres.shards import VALUES
from fairlane.store.statements import read

_PACKAGE = "fairlane.store.postgres"
_LOCK = 0x6661_6972  # any number that no other program uses for an advisory lock: "fair"
_APPLIED = "INSERT INTO fairlane.migrations (version, name, hash, applied_at) VALUES ($1, $2, $3, clock_timestamp())"


async def migrate(connection: asyncpg.Connection[Any], *, shards: int) -> list[int]:
    """Apply what is missing; the store's shard values. StoreUnsafe if the schema is not one that this code can bring up
    to date.

    Functions and views are replaced behind a migration, or when their text is not the installed one. A function whose
    arguments or result change is dropped by a migration first, because PostgreSQL would keep both; so is a view over a
    column that changes.
    """
    known = schema.load(_PACKAGE)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if await connection.fetchval("SELECT to_regclass('fairlane.migrations')") is None:
            await connection.execute(known.text)
            await connection.execute(_APPLIED, known.version, "schema", known.hash)
            await connection.execute(
                "INSERT INTO fairlane.shards (shard) SELECT unnest($1::int[])", list(VALUES[:shards])
            )
        # As a document: the table of an unreleased version may have no hash.
        applied = await connection.fetch(
            "SELECT m.version, to_jsonb(m) ->> 'hash' FROM fairlane.migrations m ORDER BY m.version"
        )
        missing = known.missing([(row[0], row[1]) for row in applied], "the database")
        for migration in missing:
            await connection.execute(migration.text)
            await connection.execute(_APPLIED, migration.version, migration.name, None)
        await _install_functions(connection, anew=bool(missing))
        rows = await connection.fetch("SELECT shard FROM fairlane.shards ORDER BY shard")
        return [row[0] for row in rows]


@cache
def functions() -> list[str]:
    """The text of every file of functions, and of the views."""
    directory = files(_PACKAGE).joinpath("functions")
    names = sorted(file.name for file in directory.iterdir() if file.name.endswith(".sql"))
    return [*(read(_PACKAGE, f"functions/{name}") for name in names), read(_PACKAGE, "views.sql")]


async def _install_functions(connection: asyncpg.Connection[Any], *, anew: bool) -> None:
    texts = functions()
    text_hash = hashlib.sha256("".join(texts).encode()).hexdigest()
    if not anew and await connection.fetchval("SELECT hash FROM fairlane.functions") == text_hash:
        return
    # So that a function may be made before those that it calls.
    await connection.execute("SET LOCAL check_function_bodies = off")
    for text in texts:
        await connection.execute(text)
    await connection.execute(
        "INSERT INTO fairlane.functions (hash) VALUES ($1) ON CONFLICT (one) DO UPDATE SET hash = excluded.hash",
        text_hash,
    )
