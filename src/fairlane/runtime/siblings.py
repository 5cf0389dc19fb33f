"""Sibling processes of one broker, which ask each other what they count, so that whichever is asked shows all of them.

Each listens on a socket in the data directory and answers a line of JSON, a question and what it is given, with JSON.
Nothing is done until somebody asks."""

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

ASK_SECONDS: Final = 1.0
"""A process that takes longer is left out."""
_PATH_BYTES_MAX: Final = 100  # the system takes few more of a socket

log = logging.getLogger(__name__)


class Siblings:
    """Sibling processes: `number` is this one's, of `count`."""

    def __init__(self, directory: Path, number: int, count: int) -> None:
        self._directory = directory
        self.number = number
        self.count = count
        self._others = [other for other in range(count) if other != number]
        self._server: asyncio.Server | None = None

    async def serve(self, answers: Mapping[str, Callable[..., Any]]) -> None:
        """Answer the questions that are named here."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, ValueError, LookupError, TimeoutError):  # a process of another version
                async with asyncio.timeout(ASK_SECONDS):
                    what, *given = msgspec.json.decode(await reader.readline())
                    writer.write(encode(answers[what](*given)))
                    await writer.drain()
            writer.close()

        try:
            with _short(self._path(self.number)) as name:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)  # of whoever listened there before
                self._server = await asyncio.start_unix_server(answer, name)
                os.chmod(name, 0o600)  # for the user that it runs as, and nobody else
        except OSError as error:
            log.error(
                "metrics of this process are missing at its siblings, cannot listen on %(directory)s: %(error)s",
                {"directory": self._directory, "error": error},
            )

    async def ask(self, *question: Any) -> dict[int, bytes | None]:
        """What each of the others says; None of one that does not answer."""
        line = encode(question) + b"\n"
        answers = await asyncio.gather(*(self._ask(other, line) for other in self._others))
        return dict(zip(self._others, answers, strict=True))

    async def _ask(self, number: int, line: bytes) -> bytes | None:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                with _short(self._path(number)) as name:
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
def _short(path: Path) -> Iterator[str]:
    """A name for the path that is short enough for a socket."""
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
