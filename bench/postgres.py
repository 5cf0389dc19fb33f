"""A PostgreSQL server of our own on disk, durable as in production, gone when the measurement is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

from tests.postgres import MAJORS, PostgresServer, running_server

__all__ = ["MAJORS", "PostgresServer", "fresh_database", "running", "settings_in_force"]

# The first three are what durable means. The others keep checkpoints out of short runs, for both sides alike.
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
def running(directory: Path, *, major: int) -> Iterator[PostgresServer]:
    """A server with its data below `directory`, for as long as the block lasts."""
    with running_server(major, settings=SETTINGS, base=directory) as server:
        yield server


@asynccontextmanager
async def fresh_database(server: PostgresServer) -> AsyncIterator[str]:
    """The URL of an empty database; what earlier runs left in memory is on disk before the block begins."""
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
    """The server's version and the settings as it reads them itself."""
    async with server.connect() as admin:
        names = ["server_version", *SETTINGS]
        return {name: await admin.fetchval("SELECT current_setting($1)", name) for name in names}
