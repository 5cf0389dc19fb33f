"""Hints between brokers by NOTIFY, on one connection of their own. Nothing depends on them but how soon a waiter
wakes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import asyncpg

from fairlane.errors import StoreUnavailable
from fairlane.store.postgres.connection import connect

_CHANNEL = "fairlane"
_GAP_SECONDS = 0.01
"""Between two notifications: NOTIFY takes a lock of the whole database, so many become one."""
_IDS_MAX = 400  # a payload has room for 8,000 bytes
_RECONNECT_SECONDS = 1.0

# The last is what the driver says when the connection was cut in the middle of a statement.
_LOST = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

log = logging.getLogger(__name__)


class Hints:
    def __init__(self, url: str) -> None:
        self._url = url
        self._pending: set[int] = set()
        self._news = asyncio.Event()
        self._wake: Callable[[int], None] | None = None
        self._task: asyncio.Task[None] | None = None

    def listen(self, wake: Callable[[int], None]) -> None:
        self._wake = wake
        self._task = asyncio.create_task(self._run(), name="fairlane hints")

    def send(self, queue_id: int) -> None:
        self._pending.add(queue_id)
        self._news.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                connection = await connect(self._url)
            except StoreUnavailable as error:
                log.warning("cannot listen for hints from other brokers, retrying: %(error)s", {"error": error})
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            try:
                await self._serve(connection)
            except _LOST as error:
                log.warning("lost the connection for hints from other brokers: %(error)r", {"error": error})
                await asyncio.sleep(_RECONNECT_SECONDS)
            finally:
                connection.terminate()

    async def _serve(self, connection: asyncpg.Connection[Any]) -> None:
        me = connection.get_server_pid()

        def heard(_connection: object, sender: int, _channel: str, payload: object) -> None:
            if sender != me and self._wake is not None:
                for queue_id in str(payload).split(","):
                    if queue_id.isdecimal():
                        self._wake(int(queue_id))

        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.add_termination_listener(lambda _: None if lost.done() else lost.set_result(None))
        await connection.add_listener(_CHANNEL, heard)
        while not lost.done():
            waiting = asyncio.ensure_future(self._news.wait())
            try:
                await asyncio.wait((waiting, lost), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
            self._news.clear()
            ids = [self._pending.pop() for _ in range(min(len(self._pending), _IDS_MAX))]
            if ids and not lost.done():
                await connection.execute("SELECT pg_notify($1, $2)", _CHANNEL, ",".join(map(str, ids)))
                await asyncio.sleep(_GAP_SECONDS)
            if self._pending:
                self._news.set()
