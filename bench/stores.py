"""Empty stores to measure on, and how much of the disk they take."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from bench.postgres import PostgresServer, fresh_database

NAMES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}


@asynccontextmanager
async def fresh_store(kind: str, directory: Path, server: PostgresServer | None) -> AsyncIterator[str]:
    """The URL of an empty store, with nothing left to write from the run before."""
    gc.collect()
    if kind == "postgres":
        assert server is not None
        async with fresh_database(server) as url:
            yield url
    else:
        with tempfile.TemporaryDirectory(prefix="fairlane-bench-", dir=directory) as below:
            os.sync()
            yield f"sqlite:///{below}/queue.db"


async def disk_bytes(url: str) -> int:
    """Of a store that nobody writes to; a log that goes with the next checkpoint is not counted."""
    if url.startswith("sqlite:"):
        return os.stat(url.removeprefix("sqlite:///")).st_size  # nothing else runs meanwhile
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT pg_database_size(current_database())"))
    finally:
        await connection.close()
