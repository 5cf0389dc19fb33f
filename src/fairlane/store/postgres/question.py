"""The question whether the database is there, on a connection of its own: it waits for no lock and no other call."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from fairlane.errors import ShuttingDown, StoreUnavailable
from fairlane.store.postgres.connection import CONNECT_SECONDS, connect, reason_of

_ASK = "SELECT current_setting('transaction_read_only'), pg_logical_emit_message(true, 'fairlane', '')"
"""Writes a record to the log that the commit must flush and replicate. It takes no lock and leaves no row behind."""
_END = """
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
WHERE a.pid = $1 AND a.application_name = 'fairlane' AND a.wait_event = 'SyncRep'
"""
"""Ends a session that waits for a standby: the server does not notice that its client has gone."""


class Question:
    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection[Any] | None = None
        self._left: int | None = None
        """Server process of the last question that got no answer."""
        self._one_by_one = asyncio.Lock()
        self._closed = False

    async def ask(self) -> None:
        """Commit a write. Raises StoreUnavailable if the database does not answer, or takes nothing."""
        async with self._one_by_one:
            if self._closed:
                raise ShuttingDown("the store is closed")
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await connect(self._url)
                # Not by a timeout, for which the driver would ask another connection to cancel.
                alarm = asyncio.get_running_loop().call_later(CONNECT_SECONDS, self._connection.terminate)
                try:
                    if self._left is not None:
                        await self._connection.fetch(_END, self._left)
                    self._left = self._connection.get_server_pid()
                    read_only = await self._connection.fetchval(_ASK)
                    self._left = None
                finally:
                    alarm.cancel()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                self._drop()
                raise StoreUnavailable(f"the database does not answer: {reason_of(error)}") from error
            except BaseException:
                self._drop()
                raise
        if read_only == "on":
            raise StoreUnavailable("the database is read-only")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def close(self) -> None:
        self._closed = True
        self._drop()
