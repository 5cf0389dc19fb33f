"""PostgreSQL servers that freeze, crash and come back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tests.postgres import PostgresServer, _reachable_binaries, _start, _wait_until_ready, unprivileged


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def _signal(server: PostgresServer, number: signal.Signals) -> None:
    """To the postmaster first when stopping, so that no child is born meanwhile."""
    os.kill(server.pid, number)
    for child in _children(server.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)


@contextlib.contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    """A server that holds its connections and answers nothing."""
    _signal(server, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(server, signal.SIGCONT)


@contextlib.asynccontextmanager
async def crashed(server: PostgresServer) -> AsyncIterator[None]:
    """A server that died at once, as with `pg_ctl stop -m immediate`, and recovers at the end."""
    await asyncio.to_thread(server.stop, signal.SIGQUIT)
    try:
        yield
    finally:
        await revive(server)


async def revive(server: PostgresServer) -> None:
    """Started by this thread, for the server ends with the thread that started it."""
    data, identity = server.directory / "data", unprivileged()
    (data / "postmaster.pid").unlink(missing_ok=True)
    server.process = _start(_reachable_binaries(server.major, server.directory, identity), data, {}, identity)
    await asyncio.to_thread(_wait_until_ready, server)
