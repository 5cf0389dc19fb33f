"""Notifications between brokers by NOTIFY, on a separate connection. They only make waiting pops wake sooner.

A starting broker asks for others, and all of them answer. A broker without an answer is alone and sends nothing,
because each notification is a transaction.
"""

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
from fairlane.store.postgres.driver import SCHEMA
from fairlane.store.postgres.versions import application_name

_GAP_SECONDS = 0.01
"""Pause between two notifications. NOTIFY locks the whole database, so several are combined."""
_IDS_MAX = 400  # a payload may have 8,000 bytes
_RECONNECT_SECONDS = 1.0
_WHO, _HERE = "who", "here"
_ANSWER_SECONDS = 1.0
"""Time for others to answer."""
_HEARD_SECONDS = 30.0
"""Silence after which a peer is asked again."""

# The last one is what the driver raises if the connection is cut during a statement.
_LOST = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

log = logging.getLogger(__name__)


class Notifier:
    def __init__(self, url: str, channel: str = SCHEMA) -> None:
        self._url = url
        self._channel = channel
        self._pending: set[int] = set()
        self._news = asyncio.Event()
        self._wake: Callable[[int], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.sole_broker = False
        """True if no other broker answered, so that notifications are not needed."""
        self._asked_at = self._heard_at = 0.0
        self._signals: set[str] = set()

    def listen(self, wake: Callable[[int], None]) -> None:
        self._wake = wake
        self._task = asyncio.create_task(self._run(), name="fairlane hints")

    def send(self, queue_id: int) -> None:
        if not self.sole_broker:
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
                connection = await connect(self._url, name=application_name())
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
                self.sole_broker = False
                connection.terminate()

    async def _serve(self, connection: asyncpg.Connection[Any]) -> None:
        me = connection.get_server_pid()

        def on_notification(_connection: object, sender: int, _channel: str, payload: object) -> None:
            if sender == me:
                return
            self.sole_broker, self._heard_at = False, monotonic()
            if payload == _WHO:
                self._signals.add(_HERE)
                self._news.set()
            for queue_id in str(payload).split(","):
                if queue_id.isdecimal() and self._wake is not None:
                    self._wake(int(queue_id))

        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.add_termination_listener(lambda _: None if lost.done() else lost.set_result(None))
        await connection.add_listener(self._channel, on_notification)
        # A crash may lose notifications, which are best effort.
        await connection.execute("SET synchronous_commit = off")
        self._ping_peers()
        while not lost.done():
            await self._wait_for_work(lost)
            self._news.clear()
            if lost.done():
                return
            signals, self._signals = self._signals, set()
            for signal in signals:
                await connection.execute("SELECT pg_notify($1, $2)", self._channel, signal)
            ids = [self._pending.pop() for _ in range(min(len(self._pending), _IDS_MAX))]
            if ids:
                await connection.execute("SELECT pg_notify($1, $2)", self._channel, ",".join(map(str, ids)))
                await asyncio.sleep(_GAP_SECONDS)
            if self._pending:
                self._news.set()

    async def _wait_for_work(self, lost: asyncio.Future[None]) -> None:
        """Wait until there is something to send, or the time for answers has passed."""
        answered = self._heard_at >= self._asked_at
        due = self._heard_at + _HEARD_SECONDS if answered else self._asked_at + _ANSWER_SECONDS
        waiting = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait(
                (waiting, lost),
                timeout=None if self.sole_broker else max(0.0, due - monotonic()),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            waiting.cancel()
        if self.sole_broker or monotonic() < due:
            return
        if self._heard_at < self._asked_at:
            self.sole_broker = True
            self._pending.clear()
        elif answered:
            self._ping_peers()

    def _ping_peers(self) -> None:
        self._asked_at = monotonic()
        self._signals.add(_WHO)
        self._news.set()
