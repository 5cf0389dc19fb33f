"""A proxy on a Unix socket that forwards bytes, and damages connections on command."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from random import Random
from typing import NamedTuple

PIECE_BYTES = 64 * 1024
_DRIP_SECONDS = 0.02


class LinkFaults(NamedTuple):
    """The damage to the connections of a proxy."""

    drop_answers: float = 0.0
    """Share of the answers that are dropped with their connection, after the request was forwarded."""
    delay_seconds: float = 0.0
    """Longest delay of each piece of bytes."""
    black_hole: bool = False
    """Keep connections open, and forward nothing."""
    drip: bool = False
    """Forward a few bytes at a time."""
    resets: float = 0.0
    """Share of the pieces after which a connection is reset, in the middle of them."""
    refusing: bool = False
    """Close new connections at once."""


class Proxy:
    """Forwards connections from one Unix socket to another. Faults apply to all connections at once."""

    def __init__(self, listen: Path, target: Path, random: Random) -> None:
        self.listen = listen
        self.target = target
        """Socket of the server that gets new connections."""
        self._random = random
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._faults = LinkFaults()

    def inject(self, faults: LinkFaults) -> None:
        """Damage all connections in this way from now on."""
        self._faults = faults

    def heal(self) -> None:
        """Forward everything at once again."""
        self._faults = LinkFaults()

    async def __aenter__(self) -> Proxy:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.listen)
        self._server = await asyncio.start_unix_server(self._serve, str(self.listen))
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every open connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self._faults.refusing:
                return
            with contextlib.suppress(OSError):
                await self._connect(reader, writer)
        finally:
            self._close(writer)
            self._tasks.discard(task)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(str(self.target))
        self._writers.add(far_writer)
        there = asyncio.create_task(self._forward(reader, far_writer, answers=False))
        back = asyncio.create_task(self._forward(far_reader, writer, answers=True))
        try:
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            self._close(far_writer)

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        """Copy bytes until either side closes, or a fault ends the connection."""
        with contextlib.suppress(ConnectionError, OSError):
            while piece := await reader.read(PIECE_BYTES):
                while self._faults.black_hole:
                    await asyncio.sleep(0.05)
                if self._faults.delay_seconds:
                    await asyncio.sleep(self._random.uniform(0, self._faults.delay_seconds))
                if answers and self._faults.drop_answers and self._random.random() < self._faults.drop_answers:
                    return
                if self._faults.resets and self._random.random() < self._faults.resets:
                    writer.write(piece[: self._random.randrange(len(piece))])
                    await writer.drain()
                    return
                await self._write(writer, piece)

    async def _write(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        while self._faults.drip and piece:
            writer.write(piece[:32])
            await writer.drain()
            piece = piece[32:]
            await asyncio.sleep(_DRIP_SECONDS)
        writer.write(piece)
        await writer.drain()
