"""Brings the schema to the version of this code: forward only, one migrator at a time, all or nothing."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import Any

import asyncpg

from fairlane.errors import StoreUnsafe
from fairlane.store.statements import read

_PACKAGE = "fairlane.store.postgres"
_LOCK = 0x6661_6972  # any number that no other program uses for an advisory lock: "fair"

# By this order: a function's body may call those before it.
FUNCTIONS = (
    *("never", "locked", "position_at", "deleted_ids", "look_up", "skips", "push", "bury", "expire", "claims"),
    *("finished", "claim", "pop", "ack", "settle", "leases", "catalogue", "back", "operations", "retention"),
    "schedule",
)

# 32 values that Citus spreads over 32 physical shards, one each; 0 first, so that a single shard is 0.
_SHARDS = (
    *(0, 8, 1, 31, 24, 10, 48, 5, 50, 4, 17, 16, 85, 36, 37, 3),
    *(52, 62, 136, 28, 6, 21, 39, 13, 2, 27, 58, 41, 9, 22, 11, 18),
)
SHARDS_MAX = len(_SHARDS)


def migrations() -> list[tuple[int, str, str]]:
    """(version, name, text) of every migration, in order."""
    found = []
    for file in files(_PACKAGE).joinpath("migrations").iterdir():
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            found.append((int(match[1]), match[2], file.read_text(encoding="utf-8")))
    return sorted(found)


async def migrate(connection: asyncpg.Connection[Any], *, shards: int) -> list[int]:
    """Apply what is missing; the store's shard values. StoreUnsafe if the schema is newer than this code.

    Functions are replaced when their text is not the installed one. One whose arguments or result change is dropped by
    a migration first, because PostgreSQL would keep both.
    """
    known = migrations()
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if await connection.fetchval("SELECT to_regclass('fairlane.migrations')") is None:
            await connection.execute(
                "CREATE SCHEMA IF NOT EXISTS fairlane;"
                "CREATE TABLE fairlane.migrations ("
                "version int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL)"
            )
        applied = {row[0] for row in await connection.fetch("SELECT version FROM fairlane.migrations")}
        if applied and max(applied) > known[-1][0]:
            raise StoreUnsafe(
                f"the schema is at version {max(applied)} and this Fairlane knows only {known[-1][0]}: upgrade Fairlane"
            )
        missing = [migration for migration in known if migration[0] not in applied]
        for version, name, text in missing:
            await connection.execute(text)
            await connection.execute(
                "INSERT INTO fairlane.migrations VALUES ($1, $2, clock_timestamp())", version, name
            )
        await _install_functions(connection)
        if not applied:
            await connection.execute("INSERT INTO fairlane.shards SELECT unnest($1::int[])", list(_SHARDS[:shards]))
        rows = await connection.fetch("SELECT shard FROM fairlane.shards ORDER BY shard")
        return [row[0] for row in rows]


async def _install_functions(connection: asyncpg.Connection[Any]) -> None:
    texts = [read(_PACKAGE, f"functions/{function}.sql") for function in FUNCTIONS]
    text_hash = hashlib.sha256("".join(texts).encode()).hexdigest()
    if await connection.fetchval("SELECT hash FROM fairlane.functions") == text_hash:
        return
    for text in texts:
        await connection.execute(text)
    await connection.execute(
        "INSERT INTO fairlane.functions (hash) VALUES ($1) ON CONFLICT (one) DO UPDATE SET hash = excluded.hash",
        text_hash,
    )
