"""Hints between brokers by NOTIFY, on one connection of their own. Nothing depends on them but how soon a waiter
wakes.

Who comes asks who else is there, and all others answer. A broker that nobody answers is alone and sends nothing: each
notification is a transaction of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

import asyncpg

from fairlane.errors import StoreUnavailable
from fairlane.store.postgres.connection import connect

_CHANNEL = "fairlane"
_GAP_SECONDS = 0.01
"""Between two notifications: NOTIFY takes a lock of the whole database, so many become one."""
_IDS_MAX = 400  # a payload has room for 8,000 bytes
_RECONNECT_SECONDS = 1.0
_WHO, _HERE = "who", "here"
_ANSWER_SECONDS = 1.0
"""So long others have to answer."""
_HEARD_SECONDS = 30.0
"""Of whom nothing was heard for so long is asked again."""

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
        self.alone = False
        """Nobody answered: there is nobody to tell."""
        self._asked_at = self._heard_at = 0.0
        self._words: set[str] = set()

    def listen(self, wake: Callable[[int], None]) -> None:
        self._wake = wake
        self._task = asyncio.create_task(self._run(), name="fairlane hints")

    def send(self, queue_id: int) -> None:
        if not self.alone:
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
                self.alone = False
                connection.terminate()

    async def _serve(self, connection: asyncpg.Connection[Any]) -> None:
        me = connection.get_server_pid()

        def heard(_connection: object, sender: int, _channel: str, payload: object) -> None:
            if sender == me:
                return
            self.alone, self._heard_at = False, monotonic()
            if payload == _WHO:
                self._words.add(_HERE)
                self._news.set()
            for queue_id in str(payload).split(","):
                if queue_id.isdecimal() and self._wake is not None:
                    self._wake(int(queue_id))

        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.add_termination_listener(lambda _: None if lost.done() else lost.set_result(None))
        await connection.add_listener(_CHANNEL, heard)
        await connection.execute("SET synchronous_commit = off")  # who crashes has nothing to tell
        self._ask()
        while not lost.done():
            await self._rest(lost)
            self._news.clear()
            if lost.done():
                return
            words, self._words = self._words, set()
            for word in words:
                await connection.execute("SELECT pg_notify($1, $2)", _CHANNEL, word)
            ids = [self._pending.pop() for _ in range(min(len(self._pending), _IDS_MAX))]
            if ids:
                await connection.execute("SELECT pg_notify($1, $2)", _CHANNEL, ",".join(map(str, ids)))
                await asyncio.sleep(_GAP_SECONDS)
            if self._pending:
                self._news.set()

    async def _rest(self, lost: asyncio.Future[None]) -> None:
        """Wait until there is something to say, or until others had their time to answer."""
        answered = self._heard_at >= self._asked_at
        due = self._heard_at + _HEARD_SECONDS if answered else self._asked_at + _ANSWER_SECONDS
        waiting = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait(
                (waiting, lost),
                timeout=None if self.alone else max(0.0, due - monotonic()),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            waiting.cancel()
        if self.alone or monotonic() < due:
            return
        if self._heard_at < self._asked_at:
            self.alone = True
            self._pending.clear()
        elif answered:
            self._ask()

    def _ask(self) -> None:
        self._asked_at = monotonic()
        self._words.add(_WHO)
        self._news.set()
