"""The worker processes of one broker, which query each other for their counters.

Each listens on a Unix socket in the data directory. A query is one line of JSON, its name and arguments; the answer
is JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlane.wire.base import encode

QUERY_SECONDS: Final = 1.0
"""Timeout of a query. Processes that take longer are left out."""
_PATH_BYTES_MAX: Final = 100  # the limit for socket paths is little more

log = logging.getLogger(__name__)


class PeerProcesses:
    """The peers of process `number`, of `count` processes."""

    def __init__(self, directory: Path, number: int, count: int) -> None:
        self._directory = directory
        self.number = number
        self.count = count
        self._peers = [other for other in range(count) if other != number]
        self._server: asyncio.Server | None = None

    async def serve(self, answers: Mapping[str, Callable[..., Any]]) -> None:
        """Answer the queries named in `answers`."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, ValueError, LookupError, TimeoutError):  # a process of another version
                async with asyncio.timeout(QUERY_SECONDS):
                    what, *given = msgspec.json.decode(await reader.readline())
                    writer.write(encode(answers[what](*given)))
                    await writer.drain()
            writer.close()

        try:
            with _short_path(self._path(self.number)) as name:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)  # left by a former process
                self._server = await asyncio.start_unix_server(answer, name)
                os.chmod(name, 0o600)  # for its own user only
        except OSError as error:
            log.error(
                "metrics of this process are missing in its peer processes, cannot listen on %(directory)s: %(error)s",
                {"directory": self._directory, "error": error},
            )

    async def query(self, *question: Any) -> dict[int, bytes | None]:
        """Return the answer of each peer, by its number. None for a peer that does not answer."""
        line = encode(question) + b"\n"
        answers = await asyncio.gather(*(self._query_one(other, line) for other in self._peers))
        return dict(zip(self._peers, answers, strict=True))

    async def _query_one(self, number: int, line: bytes) -> bytes | None:
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                with _short_path(self._path(number)) as name:
                    reader, writer = await asyncio.open_unix_connection(name)
                try:
                    writer.write(line)
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


@contextlib.contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """Yield a name for the path that is short enough for a socket."""
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
