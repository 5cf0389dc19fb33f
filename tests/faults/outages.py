"""PostgreSQL servers that freeze, crash and come back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg

from tests.postgres import PostgresServer, _reachable_binaries, _run, _start, _wait_until_ready, unprivileged
from tests.until import until


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def _signal(server: PostgresServer, number: signal.Signals) -> None:
    """Send a signal to all server processes, to the postmaster first, so that no child starts meanwhile."""
    os.kill(server.pid, number)
    for child in _children(server.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)


@contextlib.contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    """Freeze a server: it keeps its connections and answers nothing."""
    _signal(server, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(server, signal.SIGCONT)


@contextlib.asynccontextmanager
async def crashed(server: PostgresServer) -> AsyncIterator[None]:
    """Crash a server as `pg_ctl stop -m immediate` does, and let it recover at the end."""
    await asyncio.to_thread(server.stop, signal.SIGQUIT)
    try:
        yield
    finally:
        await revive(server)


async def revive(server: PostgresServer) -> None:
    """Start the server from this thread, because it ends with the thread that started it."""
    data, identity = server.directory / "data", unprivileged()
    (data / "postmaster.pid").unlink(missing_ok=True)
    programs = _reachable_binaries(server.major, server.directory, identity)
    server.process = _start(programs, data, {}, identity, server.environment)
    await asyncio.to_thread(_wait_until_ready, server)


@contextlib.contextmanager
def standby_of(primary: PostgresServer) -> Iterator[PostgresServer]:
    """Create a standby that the primary waits for with every commit."""
    directory, identity = (
        Path(tempfile.mkdtemp(prefix="fairlane-standby-", dir=primary.directory.parent)),
        unprivileged(),
    )
    try:
        if identity:
            os.chown(directory, identity["user"], identity["group"])
        programs, data = _reachable_binaries(primary.major, directory, identity), directory / "data"
        copy = [programs / "pg_basebackup", "-D", data, "-h", primary.directory, "-U", "postgres"]
        _run([*copy, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"], identity)
        server = PostgresServer(primary.major, directory, _start(programs, data, {}, identity, {}))
        try:
            _wait_until_ready(server)
            settings = "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"
            ask = [programs / "psql", "-h", primary.directory, "-U", "postgres", "-d", "postgres"]
            _run([*ask, *(word for one in settings for word in ("-c", one))], identity)
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def promote(standby: PostgresServer) -> None:
    """Promote a standby, and return when it accepts writes."""
    connection = await asyncpg.connect(standby.url())
    try:
        # A statement that waits for the promotion may hold up the recovery before it.
        await connection.execute("SELECT pg_promote(wait => false)")
        await until(lambda: connection.fetchval("SELECT NOT pg_is_in_recovery()"))
    finally:
        await connection.close()
