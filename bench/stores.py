"""Empty stores to measure on: SQLite files, and databases of a PostgreSQL server that is durable as in production."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import asyncpg

from tests.postgres import MAJORS, PostgresServer, running_server

__all__ = [
    "MAJORS",
    "NAMES",
    "PostgresServer",
    "disk_bytes",
    "fresh_database",
    "fresh_store",
    "postgres_server",
    "settings_in_force",
]

NAMES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}
# The first three make commits durable. The others keep checkpoints out of short runs, for every system alike.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
}
_numbers = count(1)


@contextmanager
def postgres_server(directory: Path, *, major: int) -> Iterator[PostgresServer]:
    """Run a server with its data below `directory`, and remove both at the end."""
    with running_server(major, settings=SETTINGS, base=directory) as server:
        yield server


@asynccontextmanager
async def fresh_database(server: PostgresServer) -> AsyncIterator[str]:
    """Create an empty database and yield its URL. Earlier runs leave nothing in memory to be written."""
    name = f"bench_{next(_numbers)}"
    async with server.connect() as admin:
        await admin.execute(f'CREATE DATABASE "{name}"')
        await admin.execute("CHECKPOINT")
    try:
        yield server.url(name)
    finally:
        async with server.connect() as admin:
            await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


async def settings_in_force(server: PostgresServer) -> dict[str, str]:
    """Return the version and the settings as the server reports them."""
    async with server.connect() as admin:
        names = ["server_version", *SETTINGS]
        return {name: await admin.fetchval("SELECT current_setting($1)", name) for name in names}


@asynccontextmanager
async def fresh_store(kind: str, directory: Path, server: PostgresServer) -> AsyncIterator[str]:
    """Create an empty store and yield its URL. Earlier runs leave nothing in memory to be written."""
    gc.collect()
    if kind == "postgres":
        async with fresh_database(server) as url:
            yield url
    else:
        with tempfile.TemporaryDirectory(prefix="fairlane-bench-", dir=directory) as below:
            os.sync()
            yield f"sqlite:///{below}/queue.db"


async def disk_bytes(url: str) -> int:
    """Return the size of a store without its write-ahead log. Nobody may write to it meanwhile."""
    if url.startswith("sqlite:"):
        return os.stat(url.removeprefix("sqlite:///")).st_size  # nothing else runs meanwhile
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT pg_database_size(current_database())"))
    finally:
        await connection.close()
