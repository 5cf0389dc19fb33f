"""A slow link to a PostgreSQL server: packets are delayed in order, larger ones longer."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from tests.postgres import PostgresServer

_SOCKET = ".s.PGSQL.5432"


class SlowLink:
    def __init__(self, server: PostgresServer, directory: Path) -> None:
        self.seconds = 0.0
        """Delay of each packet in seconds."""
        self.byte_seconds = 0.0
        """Further delay for each byte of a packet."""
        self._server = server
        self._directory = directory
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, database_url: str) -> str:
        """URL of the same database over this link."""
        return database_url.replace(str(self._server.directory), str(self._directory))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_unix_connection(str(self._server.directory / _SOCKET))
        ways = [self._carry(reader, there[1], slow=True), self._carry(there[0], writer, slow=False)]
        tasks = [asyncio.create_task(way) for way in ways]
        self._tasks.update(tasks)
        for task in tasks:
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slow: bool) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while data := await reader.read(1 << 16):
                if slow and (hold := self.seconds + len(data) * self.byte_seconds):
                    await asyncio.sleep(hold)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@contextlib.asynccontextmanager
async def slow_link(server: PostgresServer) -> AsyncIterator[SlowLink]:
    with tempfile.TemporaryDirectory(prefix="slow-") as directory:
        link = SlowLink(server, Path(directory))
        listening = await asyncio.start_unix_server(link.serve, str(Path(directory) / _SOCKET))
        try:
            yield link
        finally:
            listening.close()
            await link.close()
