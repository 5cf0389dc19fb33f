"""Clients and workers beside a broker in the same program.

    async with Broker.open("queue.db") as broker, local_url(broker) as url, Worker(app, url):
        await broker.push("orders", {"id": 1})

Needs the `server` extra.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from fairlane import server_extra as _extra  # noqa: F401
from fairlane.broker.broker import Broker
from fairlane.http.app import HttpApp
from fairlane.http.server import open_unix_socket

__all__ = ["local_url"]

_GRACE_SECONDS = 1.0


@asynccontextmanager
async def local_url(broker: Broker) -> AsyncIterator[str]:
    """Serve a broker on a Unix socket that only this user can open, and yield its URL.

    The socket is removed at the end of the block. The broker keeps running.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-"))
        path = f"{folder}/broker.sock"
        listening = stack.enter_context(open_unix_socket(path))
        server = HttpApp(broker).serve()
        await server.listen([listening])
        try:
            yield f"unix:{path}"
        finally:
            await server.close(grace_seconds=_GRACE_SECONDS)
