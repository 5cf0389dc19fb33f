"""A small server inside a test, whose connections are closed when it is."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import Self

# Turns of the loop after which a connection that asyncio has accepted reaches the server's callback.
ACCEPT_TURNS = 5


class SmallServer(ABC):
    """A server on a loopback port at `url`, for as long as its block lasts.

    Connections that are open at the end of the block are closed. asyncio's own server leaves them open, which fails
    the test.
    """

    async def __aenter__(self) -> Self:
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._server.close()
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        serving = dict(self._serving)
        for task in serving:
            task.cancel()
        if serving:
            await asyncio.wait(serving)
        for writer in serving.values():
            if not writer.is_closing():  # Its task was cancelled before the first step.
                await self._close(writer)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve_and_close(reader, writer))
        self._serving[task] = writer
        task.add_done_callback(self._serving.pop)

    async def _serve_and_close(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):  # the client went away
                await self.serve(reader, writer)
        finally:
            await self._close(writer)

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection, which is closed afterwards."""
