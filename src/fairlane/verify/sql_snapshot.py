"""The contents of a store by SQL, which does not pass through any code of the broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlane.errors import StoreUnavailable
from fairlane.store.statements import load
from fairlane.verify.history import LaneName

SQLITE = "sqlite:///"
_STATEMENTS = {dialect: load(__package__, "sql_snapshot.sql", dialect) for dialect in ("sqlite", "postgres")}


@dataclass
class SqlSnapshot:
    """The contents of the queues of a run, as SQL shows them."""

    messages: dict[LaneName, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Transaction ids by partition, in the order of their positions."""
    lags: dict[tuple[LaneName, str], int] = field(default_factory=dict)
    """Unfinished messages of each lane."""
    letters: dict[tuple[LaneName, str], int] = field(default_factory=dict)
    in_clear: set[str] = field(default_factory=set)
    """Queues with payloads in clear."""


@dataclass(frozen=True)
class OtherUsers:
    """The queues of others in a store, and the sessions of their brokers."""

    queues: int = 0
    sessions: int = 0


async def read_snapshot(urls: Sequence[str], prefix: str) -> SqlSnapshot:
    """Read the contents of the queues whose names begin with `prefix`. There is one URL for each cell, or only one."""
    found = SqlSnapshot()
    for cell, url in enumerate(urls):
        for queue, partition, id in await _fetch(url, "messages", prefix, cell):
            found.messages[LaneName(queue.removeprefix(prefix), partition)].append(id)
        for queue, partition, group, lag in await _fetch(url, "lanes", prefix, cell):
            found.lags[LaneName(queue.removeprefix(prefix), partition), group] = lag
        for queue, partition, group, letters in await _fetch(url, "letters", prefix, cell):
            found.letters[LaneName(queue.removeprefix(prefix), partition), group] = letters
        found.in_clear |= {queue.removeprefix(prefix) for (queue,) in await _fetch(url, "in_clear", prefix, cell)}
    return found


async def find_other_users(url: str, prefix: str) -> OtherUsers:
    """Return what others have in the store. Raises StoreUnavailable if it cannot be opened."""
    file = _file_of(url)
    if file is not None:
        if not await asyncio.to_thread(Path(file).exists):
            return OtherUsers()
        from fairlane.store.sqlite.connection import lock

        lock(file).release()  # raises StoreUnavailable if a broker runs on it
    [[installed]] = await _fetch(url, "installed")
    if not installed:
        return OtherUsers()
    [[queues]] = await _fetch(url, "foreign_queues", prefix)
    sessions = [[0]] if file is not None else await _fetch(url, "sessions")
    return OtherUsers(queues, sessions[0][0])


async def server_version(url: str) -> dict[str, str]:
    """Return the version of a PostgreSQL server by its name, or nothing for SQLite."""
    return {} if _file_of(url) is not None else {"PostgreSQL": (await _fetch(url, "version"))[0][0]}


async def end_sessions(url: str, *, only_cancel: bool) -> None:
    """Terminate the sessions of all brokers in a PostgreSQL database, or only cancel their statements."""
    await _fetch(url, "cancel" if only_cancel else "terminate")


def _file_of(url: str) -> str | None:
    return url.removeprefix(SQLITE) if url.startswith(SQLITE) else None


async def _fetch(url: str, name: str, argument: str | None = None, cell: int = 0) -> list[tuple[Any, ...]]:
    """Return the rows of a statement, read on a connection of its own. Each cell has a schema of its own."""
    if (file := _file_of(url)) is not None:
        return await asyncio.to_thread(_fetch_from_file, file, _STATEMENTS["sqlite"][name], argument)
    from fairlane.store.postgres.connection import connect

    connection = await connect(url)
    try:
        text = _STATEMENTS["postgres"][name].replace(":prefix", "$1")
        text = text.replace("fairlane.", f"fairlane_{cell}.") if cell else text
        return [tuple(row) for row in await connection.fetch(text, *([] if argument is None else [argument]))]
    except OSError as error:
        raise StoreUnavailable(str(error)) from error
    finally:
        await connection.close(timeout=5.0)


def _fetch_from_file(file: str, text: str, argument: str | None) -> list[tuple[Any, ...]]:
    from fairlane.store.sqlite.connection import open_reader

    db = open_reader(file)
    try:
        return list(db.execute(text, {"prefix": argument}))
    finally:
        db.close()
