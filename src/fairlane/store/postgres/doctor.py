"""Checks of a PostgreSQL server for `fairlane doctor`. They change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter, time

import asyncpg

from fairlane.errors import FairlaneError
from fairlane.store.postgres.connection import connect
from fairlane.store.postgres.health import HealthCheck
from fairlane.store.postgres.server_checks import SQL, Finding, check_server

SAFE = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply", "remote_write", "local"),
}
_NOTIFY_SECONDS = 3.0
_SKEW_SECONDS = 1.0
_POOLED_SECONDS = 5.0
_TRIES = 5

_DEAF = ("notify", "a pooler is between, which forgets who listens", "name the server itself with --listen-url")


async def diagnose(
    url: str, listen_url: str | None, statement_cache: bool = True, processes: int = 1
) -> AsyncIterator[Finding]:
    try:
        connection = await connect(url)
    except FairlaneError as error:
        yield "store", str(error), "start it, or correct the URL of the store"
        return
    try:
        async with connection.transaction(readonly=True):  # a pooler gives it one session
            async for finding in _checks(connection, processes):
                yield finding
    finally:
        await connection.close(timeout=5.0)
    yield await _committed(url)
    pooled, keeps = await _pooled(url)
    if pooled:
        between = f"a pooler gives each transaction another, and {'keeps' if keeps else 'loses'} prepared statements"
        yield "sessions", between, "" if keeps or not statement_cache else "serve with --no-statement-cache"
    else:
        yield "sessions", "each connection has its own", ""
    yield _DEAF if pooled and listen_url is None else await _notified(listen_url or url, apart=listen_url is not None)


async def _checks(connection: asyncpg.Connection[asyncpg.Record], processes: int) -> AsyncIterator[Finding]:
    version = connection.get_server_version()
    yield (
        "version",
        f"PostgreSQL {await connection.fetchval(SQL['setting'], 'server_version')}",
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
    if not role["standby"]:
        async for finding in check_server(connection, processes):
            yield finding


async def _committed(url: str) -> Finding:
    """Commit a write that leaves nothing behind."""
    health, began = HealthCheck(url), perf_counter()
    try:
        await health.run()
    except FairlaneError as error:
        return "commit", str(error), "look at the log of the server: its disk, its role, and the standbys it waits for"
    finally:
        health.close()
    return "commit", f"a write is committed, {(perf_counter() - began) * 1000:.1f} ms with the connection", ""


async def _pooled(url: str) -> tuple[bool, bool]:
    """Return two flags: a pooler changes sessions between transactions, and it supports prepared statements.

    While a second connection is in a transaction, it uses the first one's session if sessions are shared.
    """
    first, second = await connect(url), await connect(url)
    pooled = False
    try:
        for number in range(_TRIES):
            statement = await first.prepare(SQL["session"], name=f"fairlane_doctor_{number}")
            before = await statement.fetchval()
            async with second.transaction(readonly=True), asyncio.timeout(_POOLED_SECONDS):
                pooled = await second.fetchval(SQL["session"]) == before or pooled
                after = await statement.fetchval()
            pooled = pooled or after != before
            if after != before or not pooled:
                return pooled, True
        return pooled, True  # a busy pooler happened to return the same session each time
    except (asyncpg.PostgresError, TimeoutError):  # it is prepared in another session, or there is only one session
        return True, False
    finally:
        first.terminate()
        second.terminate()


async def _notified(url: str, *, apart: bool) -> Finding:
    heard = asyncio.Event()
    try:
        if apart and (await _pooled(url))[0]:
            return _DEAF
        connection = await connect(url)
        try:
            await connection.add_listener("fairlane_doctor", lambda *_: heard.set())
            await connection.execute(SQL["notify"])
            async with asyncio.timeout(_NOTIFY_SECONDS):
                await heard.wait()
        finally:
            await connection.close(timeout=5.0)
    except TimeoutError:
        return "notify", "no notification came back", "name the server itself with --listen-url"
    except (FairlaneError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        return "notify", f"it cannot be listened to: {error}", "name the server itself with --listen-url"
    return "notify", "notifications come back" + (" by --listen-url" if apart else ""), ""
