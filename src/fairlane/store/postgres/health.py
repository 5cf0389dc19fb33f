"""The health check of the database, on its own connection: it waits for no lock and no other call."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from fairlane.errors import OutcomeUnknown, ShuttingDown, StoreUnavailable
from fairlane.store.postgres.connection import CONNECT_SECONDS, LOST, connect, reason_of
from fairlane.store.postgres.driver import WAL_RECORD, check_replicated

_WRITE = f"SELECT current_setting('transaction_read_only'), {WAL_RECORD}"
"""Fails on a standby, and otherwise waits like any commit."""
_TERMINATE = """
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
WHERE a.pid = $1 AND a.application_name = 'fairlane' AND a.wait_event = 'SyncRep'
"""
"""Ends a session that waits for a standby: the server does not notice that its client is gone."""
_NO_STANDBY = "its commits wait for a synchronous standby that does not answer"


class HealthCheck:
    """A check that the database accepts writes: it commits a small one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection[Any] | None = None
        self._unanswered_pid: int | None = None
        """Server process of the last check that got no answer."""
        self._why = ""
        """Reason why the last check got no answer, if a later one found it."""
        self._one_by_one = asyncio.Lock()
        self._closed = False

    async def run(self) -> None:
        """Commit a write. Raises StoreUnavailable if the database does not answer or is read-only."""
        async with self._one_by_one:
            if self._closed:
                raise ShuttingDown("the store is closed")
            try:
                read_only = await self._commit()
            except OutcomeUnknown as error:
                self._drop()
                raise StoreUnavailable(f"the database does not answer: {_NO_STANDBY}") from error
            except (*LOST, asyncpg.PostgresError) as error:
                self._drop()
                raise StoreUnavailable(f"the database does not answer: {self._why or reason_of(error)}") from error
            except BaseException:
                self._drop()
                raise
        if read_only == "on":
            raise StoreUnavailable("the database is read-only")

    async def _commit(self) -> object:
        """Commit a write, and return whether the server is read-only."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._url)
        # Not a timeout: the driver would open another connection to cancel the statement.
        alarm = asyncio.get_running_loop().call_later(CONNECT_SECONDS, self._connection.terminate)
        try:
            if self._unanswered_pid is not None:
                waited = await self._connection.fetch(_TERMINATE, self._unanswered_pid)
                self._why = _NO_STANDBY if waited else ""
            self._unanswered_pid = self._connection.get_server_pid()
            read_only = await self._connection.fetchval(_WRITE)
            check_replicated(self._connection)
            self._unanswered_pid, self._why = None, ""
            return read_only
        finally:
            alarm.cancel()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def close(self) -> None:
        self._closed = True
        self._drop()
