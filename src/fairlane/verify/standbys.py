"""Synchronous standbys of a PostgreSQL server of a run, for failovers under traffic."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fairlane.errors import StoreUnavailable
from fairlane.store.postgres.embedded import EmbeddedPostgres

READY_SECONDS_MAX = 60.0
_SUPERUSER = "local all postgres trust\nlocal replication postgres trust\n"
_SYNCHRONOUS = "synchronous_standby_names = 'ANY 1 (*)'\n"
_ALONE = "synchronous_standby_names = ''\n"
_DISCONNECTED = "primary_conninfo = ''\n"


class Standbys:
    """Copies of a primary that confirm each of its commits. One of them takes its place."""

    def __init__(self, primary: EmbeddedPostgres, count: int) -> None:
        self._primary = primary
        self._root = primary.data.parent
        self._directories = [self._root / f"standby-{number}" for number in range(count)]

    def socket(self, number: int) -> Path:
        return self._directories[number] / self._primary.socket.name

    async def start(self) -> None:
        """Copy the primary, and return when every commit waits for a standby."""
        with (self._primary.data / "pg_hba.conf").open("a") as hba:
            hba.write(_SUPERUSER)
        self._set(self._primary.data, "")
        await asyncio.gather(*(asyncio.to_thread(self._copy, one) for one in self._directories))
        self._set(self._primary.data, _SYNCHRONOUS)
        wanted = "SELECT count(*) = $1 FROM pg_stat_replication WHERE sync_state = 'quorum'"
        await _until(lambda: self._ask(self._primary.socket, wanted, len(self._directories)))

    def _copy(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(mode=0o700)
        owner = self._root.stat()
        os.chown(directory, owner.st_uid, owner.st_gid)
        sockets, data = str(self._primary.socket.parent), str(directory / "data")
        copy = ("--checkpoint=fast", "--no-sync", "--write-recovery-conf")
        self._primary.run("pg_basebackup", "-D", data, "-h", sockets, "-U", "postgres", *copy)
        settings = {"listen_addresses": "", "unix_socket_directories": str(directory), "max_connections": "100"}
        words = shlex.join(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))
        self._primary.run("pg_ctl", "start", "-D", data, "-w", "-l", str(directory / "log"), "-o", words)

    def disconnect(self, number: int) -> None:
        """Cut a standby from the primary."""
        self._set(self._directories[number] / "data", _DISCONNECTED)

    async def promote(self) -> int:
        """Promote the standby that has most of the log, and return its number once it takes writes."""
        received = "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn"
        places = [await self._ask(self.socket(number), received) for number in range(len(self._directories))]
        best = places.index(max(places))
        await self._ask(self.socket(best), "SELECT pg_promote(wait => false)")
        await _until(lambda: self._ask(self.socket(best), "SELECT NOT pg_is_in_recovery()"))
        return best

    async def replace_primary(self, number: int) -> None:
        """Stop the new primary and put its data in the place of the old one, which has ended and is not running."""
        await asyncio.to_thread(self._stop, self._directories[number], "fast")
        await asyncio.to_thread(shutil.rmtree, self._primary.data)
        (self._directories[number] / "data").rename(self._primary.data)

    async def end(self) -> None:
        """Stop the standbys, and make the primary commit without them."""
        hba = self._primary.data / "pg_hba.conf"
        hba.write_text(hba.read_text().replace(_SUPERUSER, ""))
        self._set(self._primary.data, _ALONE)
        for directory in self._directories:
            with contextlib.suppress(StoreUnavailable):
                await asyncio.to_thread(self._stop, directory, "immediate")
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    def _stop(self, directory: Path, mode: str) -> None:
        self._primary.run("pg_ctl", "stop", "-D", str(directory / "data"), "-w", "-m", mode)

    def _set(self, data: Path, setting: str) -> None:
        """Override a setting of a server, and have it read its settings."""
        with (data / "postgresql.auto.conf").open("a") as file:
            file.write(setting)
        with contextlib.suppress(OSError, ValueError):  # it is not running
            os.kill(int((data / "postmaster.pid").read_text().partition("\n")[0]), signal.SIGHUP)

    async def _ask(self, socket: Path, query: str, *arguments: object) -> Any:
        from fairlane.store.postgres.connection import connect

        place = urlencode({"host": str(socket.parent), "port": "5432"})
        connection = await connect(f"postgresql://postgres@/postgres?{place}")
        try:
            return await connection.fetchval(query, *arguments)
        finally:
            await connection.close(timeout=5.0)


async def _until(ready: Callable[[], Awaitable[Any]]) -> None:
    give_up_at = time.monotonic() + READY_SECONDS_MAX
    while not await ready():
        if time.monotonic() > give_up_at:
            raise StoreUnavailable("a standby of the run was not ready in time")
        await asyncio.sleep(0.05)
