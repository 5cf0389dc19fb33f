"""Sibling processes of one broker, which ask each other what they count, so that one scrape shows all of them.

Each listens on a socket in the data directory and answers whoever connects with a snapshot. Nothing is done until
somebody asks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from fairlane.runtime.unix_socket import open_socket, serve_socket

ASK_SECONDS: Final = 1.0
"""A process that takes longer is left out."""

log = logging.getLogger(__name__)


class Siblings:
    """Sibling processes: `number` is this one's, of `count`."""

    def __init__(self, directory: Path, number: int, count: int) -> None:
        self._directory = directory
        self.number = number
        self._others = [other for other in range(count) if other != number]
        self._server: asyncio.Server | None = None

    async def serve(self, snapshot: Callable[[], bytes]) -> None:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                writer.write(snapshot())
                await writer.drain()
            writer.close()

        try:
            self._server = await serve_socket(self._path(self.number), answer)
        except OSError as error:
            log.error(
                "metrics of this process are missing at its siblings, cannot listen on %s: %s", self._directory, error
            )

    async def ask(self) -> dict[int, bytes | None]:
        """What each of the others says; None of one that does not answer."""
        answers = await asyncio.gather(*map(self._ask, self._others))
        return dict(zip(self._others, answers, strict=True))

    async def _ask(self, number: int) -> bytes | None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                reader, writer = await open_socket(self._path(number))
                try:
                    return await reader.read() or None
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None

    def _path(self, number: int) -> Path:
        return self._directory / f"worker-{number}.sock"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
