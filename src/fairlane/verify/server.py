"""PostgreSQL servers that belong to a run, which may therefore crash, freeze and fill them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.parse import quote_plus

from fairlane.errors import StoreUnavailable
from fairlane.store.postgres.embedded import EmbeddedPostgres
from fairlane.verify.disk import RecordedDisk
from fairlane.verify.libraries import CompiledLibraries, PreloadedLibraries
from fairlane.verify.preload import Preload
from fairlane.verify.proxy import Proxy

END_SECONDS_MAX = 60.0
CONNECTIONS = 60


class OwnServer:
    """The embedded PostgreSQL of a run."""

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self._postgres = postgres

    @property
    def postgres(self) -> EmbeddedPostgres:
        return self._postgres

    @property
    def url(self) -> str:
        return self._postgres.url

    @property
    def socket(self) -> Path:
        return self._postgres.socket

    @property
    def running(self) -> bool:
        pid = self._postgres.pid
        return pid is not None and _is_alive(pid)

    def backends(self) -> list[int]:
        """Return the processes that the postmaster has started."""
        pid = self._postgres.pid
        return _children(pid) if pid is not None else []

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze all processes of the server. It keeps its connections and answers nothing."""
        self._signal_all(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal_all(signal.SIGCONT)

    async def crash(self, number: signal.Signals) -> None:
        """End the server with SIGQUIT, which is an immediate shutdown, or with SIGKILL, as when memory runs out."""
        pid = self._postgres.pid
        if pid is None:
            return
        children = _children(pid)
        _send(pid, number)
        give_up_at = time.monotonic() + END_SECONDS_MAX
        # After SIGKILL the children find out by themselves, and a new server waits for them.
        while any(map(_is_alive, (pid, *children))) and time.monotonic() < give_up_at:
            await asyncio.sleep(0.02)

    async def revive(self) -> None:
        """Start the server if it has ended, and return when it takes connections."""
        give_up_at = time.monotonic() + END_SECONDS_MAX
        while True:
            try:
                if not self.running:
                    await asyncio.to_thread(self._postgres.start)
                return
            except StoreUnavailable:
                if time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(0.2)

    def _signal_all(self, number: signal.Signals) -> None:
        """Signal the postmaster first, so that no child starts meanwhile."""
        pid = self._postgres.pid
        for one in (pid, *_children(pid)) if pid is not None else ():
            _send(one, number)


@dataclass(frozen=True)
class ServerTarget:
    """A server of a run, with its proxy and its preloaded libraries."""

    server: OwnServer
    back: Proxy
    """The proxy between the brokers and the server."""
    libraries: PreloadedLibraries | None
    """None without a compiler."""

    @property
    def url(self) -> str:
        """URL past the proxy."""
        return self.server.url

    @property
    def broker_url(self) -> str:
        """URL through the proxy."""
        return self.url.replace(quote_plus(str(self.server.socket.parent)), quote_plus(str(self.back.listen.parent)))

    @property
    def preload(self) -> Preload:
        assert self.libraries is not None
        return self.libraries.preload

    @property
    def disk(self) -> RecordedDisk:
        assert self.libraries is not None
        return self.libraries.disk

    async def mend(self) -> None:
        """Undo every fault, and start the server if it has ended."""
        if self.libraries is not None:
            self.preload.heal()
        self.back.heal()
        await self.server.revive()


@contextlib.asynccontextmanager
async def own_server(directory: Path, random: Random, library: CompiledLibraries | None) -> AsyncIterator[ServerTarget]:
    """Run a server in a directory, with a proxy before it."""
    folder = directory / "back"
    await asyncio.to_thread(folder.mkdir, mode=0o711, parents=True)
    data = directory / "postgres" / "data"
    libraries = library.load(directory.name, [data]) if library is not None else None
    environment = libraries.environment if libraries is not None else {}
    with EmbeddedPostgres(directory, connections=CONNECTIONS, environment=environment) as postgres:
        server = OwnServer(postgres)
        if libraries is not None:
            await server.crash(signal.SIGINT)  # a fast shutdown, so that all files are complete
            await asyncio.to_thread(libraries.disk.reset)
            await server.revive()
        async with Proxy(folder / server.socket.name, server.socket, Random(random.random())) as back:
            yield ServerTarget(server, back, libraries)


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found
