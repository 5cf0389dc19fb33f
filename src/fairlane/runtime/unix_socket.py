"""Unix sockets, by which processes of one broker talk. For the user that they run as, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

_PATH_BYTES_MAX: Final = 100  # the system takes few more

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


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


async def open_socket(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with _short(path) as name:
        return await asyncio.open_unix_connection(name)


async def serve_socket(path: Path, serve: Serve) -> asyncio.Server:
    """Listen in place of whoever did before. The caller knows that it is the only one."""
    with _short(path) as name:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        server = await asyncio.start_unix_server(serve, name)
        os.chmod(name, 0o600)
        return server
