"""The examination of a PostgreSQL server: what a broker needs of it, looked at without changing anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import time

import asyncpg

from fairlane.errors import FairlaneError
from fairlane.store.postgres.connection import connect
from fairlane.store.statements import load

SQL = load(__package__, "examine.sql")
SAFE = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply", "remote_write", "local"),
}
_NOTIFY_SECONDS = 3.0
_SKEW_SECONDS = 1.0

Finding = tuple[str, str, str]
"""What was looked at, what is so, and what to do about it; nothing is to be done if that is empty."""


async def examine(url: str, listen_url: str | None) -> AsyncIterator[Finding]:
    try:
        connection = await connect(url)
    except (FairlaneError, asyncpg.PostgresError, OSError, TimeoutError) as error:
        yield "store", f"it cannot be reached: {error}", "start it, or correct the URL of the store"
        return
    try:
        async for finding in _asked(connection):
            yield finding
    finally:
        await connection.close(timeout=5.0)
    yield await _notified(listen_url or url, apart=listen_url is not None)


async def _asked(connection: asyncpg.Connection[asyncpg.Record]) -> AsyncIterator[Finding]:
    version = connection.get_server_version()
    yield (
        "version",
        f"PostgreSQL {version.major}.{version.minor}",
        "" if version.major >= 15 else "15 or newer is needed",
    )
    role = await connection.fetchrow(SQL["role"])
    assert role is not None
    may = role["creates"] and role["owns"]
    advice = "GRANT CREATE ON DATABASE ... TO the role, which must own the schema fairlane if it is there"
    yield (
        "privileges",
        "the role may make its schema" if may else "the role may not make its schema",
        "" if may else advice,
    )
    if role["standby"]:
        yield "role", "the server is a standby and takes no writes", "name the primary in the URL of the store"
    for setting, safe in SAFE.items():
        value = await connection.fetchval(SQL["setting"], setting)
        yield setting, str(value), "" if value in safe else f"set it to {safe[0]}: committed messages could be lost"
    skew = abs(time() - role["now"])
    yield "clock", f"{skew:.2f} s apart", "" if skew < _SKEW_SECONDS else "let both machines keep time by NTP"
    pooler = await _pooled(connection)
    yield "sessions", pooler or "prepared statements stay", "serve with --no-statement-cache" if pooler else ""


async def _pooled(connection: asyncpg.Connection[asyncpg.Record]) -> str:
    """How a pooler between shows itself; nothing if there is none."""
    try:
        statement = await connection.prepare(SQL["setting"])
        await statement.fetchval("fsync")
        await statement.fetchval("fsync")
    except asyncpg.PostgresError as error:
        return f"a pooler hands each transaction to another session: {error}"
    return ""


async def _notified(url: str, *, apart: bool) -> Finding:
    heard = asyncio.Event()
    try:
        connection = await connect(url)
        try:
            await connection.add_listener("fairlane_doctor", lambda *_: heard.set())
            await connection.execute(SQL["notify"])
            async with asyncio.timeout(_NOTIFY_SECONDS):
                await heard.wait()
        finally:
            await connection.close(timeout=5.0)
    except TimeoutError:
        return "notify", "no notification came back", "name the server itself with --listen-url: a pooler is between"
    except (FairlaneError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        return "notify", f"it cannot be listened to: {error}", "name the server itself with --listen-url"
    return "notify", "notifications come back" + (" by --listen-url" if apart else ""), ""
