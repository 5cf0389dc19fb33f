"""Migration of the schema to the version of this code: one migrator at a time, all or nothing.

Brokers of the previous version keep running meanwhile. If one of them starts again, it leaves the functions and views
as the newer version installed them.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import asyncpg

from fairlane.errors import StoreUnsafe
from fairlane.model.ids import first_id
from fairlane.store import schema
from fairlane.store.postgres import citus, citus_sql, versions
from fairlane.store.postgres.versions import PACKAGE
from fairlane.store.schema import FIRST, Applied, Migration
from fairlane.store.statements import read

_WITH_CELL = ("queues", "groups", "partitions")
"""Tables whose ids say in which cell a row was created."""
_LOCK = 0x6661_6972  # an arbitrary key for an advisory lock: "fair"
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '2s'"
"""Requests of other brokers queue behind a migration that waits for a lock, so it soon gives up and is repeated."""
_PAUSES_SECONDS = (0.5, 1, 2, 4, 8)
_APPLIED = """
INSERT INTO fairlane.migrations (version, name, hash, needs, applied_at) VALUES ($1, $2, $3, $4, clock_timestamp())
"""


async def migrate(connection: asyncpg.Connection[Any], cell: int = 0) -> None:
    """Apply the missing migrations, and try again if other brokers hold a lock that they need.

    Raises StoreUnsafe if this code cannot use the schema.
    """
    for pause in (*_PAUSES_SECONDS, None):
        try:
            return await _migrate(connection, cell)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError):
            if pause is None:
                raise
            await asyncio.sleep(pause)
    raise AssertionError("unreachable")


async def _migrate(connection: asyncpg.Connection[Any], cell: int) -> None:
    """Apply the missing migrations.

    In a new schema, the ids of queues, groups and partitions begin where those of `cell` begin.

    Functions and views are replaced after a migration, or when their text differs from the installed one. A function
    with changed arguments is installed beside the old one, which brokers of the previous version call.
    """
    known = schema.load(PACKAGE)
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(_LOCK_TIMEOUT)
        if await connection.fetchval("SELECT to_regclass('fairlane.migrations')") is None:
            await connection.execute(known.text)
            if cell and await citus.is_citus(connection):
                await citus.distribute(connection)
            else:
                for table in _WITH_CELL if cell else ():
                    await connection.execute(
                        f"ALTER TABLE fairlane.{table} ALTER COLUMN id RESTART WITH {first_id(cell)}"
                    )
            await connection.execute(_APPLIED, known.version, "schema", known.hash, known.needs)
        # As a document, because the table of an unreleased version may lack columns.
        applied = await connection.fetch(
            "SELECT m.version, to_jsonb(m) ->> 'hash', (to_jsonb(m) ->> 'needs')::int FROM fairlane.migrations m"
            " ORDER BY m.version"
        )
        missing = known.missing([Applied(*row) for row in applied], "the database")
        await _check_brokers(connection, missing)
        for migration in missing:
            await connection.execute(migration.text)
            await connection.execute(_APPLIED, migration.version, migration.name, None, migration.needs)
        installed = await _install_functions(connection, cell, anew=bool(missing))
    await versions.log_others(connection, installed)


async def _check_brokers(connection: asyncpg.Connection[Any], missing: Sequence[Migration]) -> None:
    """Raise StoreUnsafe if brokers are running that cannot use the migrated database."""
    needs = max((migration.needs for migration in missing), default=FIRST)
    if needs == FIRST:
        return
    old = [broker.fairlane for broker in await versions.running(connection) if broker.schema < needs]
    if old:
        raise StoreUnsafe(
            f"brokers of Fairlane {', '.join(old)} use the database and cannot continue after this upgrade: stop them,"
            " or upgrade them to the version before this one first; nothing was changed"
        )


@cache
def functions() -> list[str]:
    """Return the text of all function files, and of the views."""
    directory = files(PACKAGE).joinpath("functions")
    names = sorted(file.name for file in directory.iterdir() if file.name.endswith(".sql"))
    return [*(read(PACKAGE, f"functions/{name}") for name in names), read(PACKAGE, "views.sql")]


async def _install_functions(connection: asyncpg.Connection[Any], cell: int, *, anew: bool) -> str:
    """Install the functions, unless a newer version has. Returns the version whose functions are installed."""
    texts = functions()
    distributed = await citus.is_distributed(connection)
    if distributed:
        texts = [*map(citus_sql.function_text, texts), citus_sql.own_functions(cell)]
    text_hash = hashlib.sha256("".join(texts).encode()).hexdigest()
    installed = await connection.fetchrow("SELECT hash, version FROM fairlane.functions")
    if installed and not anew:
        if versions.is_newer(installed["version"], versions.OWN):
            return str(installed["version"])
        if installed["hash"] == text_hash and installed["version"] == versions.OWN:
            return versions.OWN
    # A function may be created before the functions that it calls.
    await connection.execute("SET LOCAL check_function_bodies = off")
    for text in texts:
        await connection.execute(text)
    if distributed:
        await citus.delegate(connection)
    await connection.execute(
        "INSERT INTO fairlane.functions (hash, version) VALUES ($1, $2)"
        " ON CONFLICT (one) DO UPDATE SET hash = excluded.hash, version = excluded.version",
        text_hash,
        versions.OWN,
    )
    return versions.OWN
