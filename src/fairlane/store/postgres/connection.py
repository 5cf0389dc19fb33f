"""Connections to PostgreSQL: a pool, running statements, and mapping the driver's errors."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from fairlane.errors import (
    BrokerFailed,
    FairlaneError,
    LaneLocked,
    OutcomeUnknown,
    QueueElsewhere,
    ShuttingDown,
    StoreRefused,
    StoreUnavailable,
)
from fairlane.runtime.clock import Clock
from fairlane.store.postgres import citus_sql
from fairlane.store.postgres.driver import SCHEMA, UNREPLICATED, check_replicated, connection_to

if TYPE_CHECKING:
    from fairlane.store.codec import Codec

T = TypeVar("T")

STATEMENT_SECONDS = 30.0
CONNECT_SECONDS = 5.0
RETRY_SECONDS = (0.1, 0.2, 0.4)
"""Seconds to wait before a retry after a deadlock or a serialisation failure."""
SESSION = {
    "application_name": "fairlane",
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "5s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
    "client_connection_check_interval": "5s",
}
"""Settings of every session, so that the server ends sessions of a frozen or dead broker that hold locks."""
LIMITS = (
    "SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '30s';"
    f"SET LOCAL idle_in_transaction_session_timeout = '{SESSION['idle_in_transaction_session_timeout']}'"
)
"""Settings of each transaction, because a pooler may not pass on session settings."""

EPOCH_2000 = 946_684_800_000_000  # PostgreSQL counts microseconds from 2000
MINUS_INFINITY = -(2**63) + EPOCH_2000

_ADVICE = {
    "3D000": "make it (CREATE DATABASE), or name another in the URL of the store",
    "28": "check the user and the password in the URL of the store",
    "42501": "the role must be allowed to make a schema: GRANT CREATE ON DATABASE ... TO ...",
}
"""Advice for permanent errors, by SQLSTATE."""
TRANSIENT = ("40001", "40P01")
_LOCKED = "55P03"
_ELSEWHERE = "FL001"
"""SQLSTATE of our functions when the queue is placed in another cell."""
_DEFECTS = ("22", "23")
"""Classes of SQLSTATE for bad data and broken constraints, which no statement of ours should cause."""
_REFUSED = ("53", "57P03", "25006", "28", "3D", "42501", "58")
"""SQLSTATEs with which the server refuses a statement before it is applied: full, starting, read-only, forbidden, I/O.
"""
_UNKNOWN_SETTINGS = ("08P01", "22023", "42704", "55P02")
"""SQLSTATEs with which poolers and servers refuse unknown session settings."""

LOST = (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors that the driver raises if a connection is lost or cannot be opened in time."""

log = logging.getLogger(__name__)


class Database:
    """A pool of connections. No exception of the driver leaves it."""

    def __init__(self, pool: asyncpg.Pool[Any], clock: Clock | None) -> None:
        self._pool = pool
        self._clock = clock
        self._closed = False
        self._at_hand: list[asyncpg.Connection[Any]] = []
        """Idle connections that are not returned to the pool, because that would cost a task and a reset each."""
        self._wanted = self._busy = 0
        """Number of callers that wait for a connection, and of connections in use."""
        self.codec: Codec
        """Codec of the store, used by its families."""
        # Transactions may wait for locks, so they leave some connections to others.
        self._transactions = asyncio.Semaphore(max(1, self.connections - max(1, self.connections // 4)))

    @property
    def connections(self) -> int:
        return int(self._pool.get_max_size())

    def in_use(self) -> tuple[int, int]:
        """Return the number of open connections, and how many are in use."""
        return int(self._pool.get_size()), self._busy

    def time(self) -> int | None:
        """Return the `p_now` of statements: None for the database's clock, unless a test controls the time."""
        return self._clock() if self._clock else None

    async def read(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        return await self._run(lambda connection: connection.fetch(statement, *arguments), StoreUnavailable)

    async def write(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        """Run one statement in its own transaction."""
        return await self._run(lambda connection: connection.fetch(statement, *arguments), OutcomeUnknown)

    async def transact(
        self,
        work: Callable[[asyncpg.Connection[Any]], Awaitable[T]],
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> T:
        """Run `work` in a transaction, and again from the start if the database asks for a retry.

        `check` may refuse it when its turn has come, before it takes a connection.
        """

        async def run(connection: asyncpg.Connection[Any]) -> T:
            async with connection.transaction(isolation="read_committed"):
                await connection.execute(LIMITS)
                return await work(connection)

        async with self._transaction_slot():
            if check is not None:
                await check()
            return await self._run(run, OutcomeUnknown)

    @asynccontextmanager
    async def _transaction_slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._transactions.acquire()
        except TimeoutError:
            raise StoreUnavailable("too many transactions wait for their turn; try again") from None
        try:
            yield
        finally:
            self._transactions.release()

    async def _run(
        self, work: Callable[[asyncpg.Connection[Any]], Awaitable[T]], lost: type[StoreUnavailable | OutcomeUnknown]
    ) -> T:
        for pause in (*RETRY_SECONDS, None):
            connection = await self._acquire()
            self._busy += 1
            good = ended = False
            try:
                async with asyncio.timeout(STATEMENT_SECONDS):
                    result = await work(connection)
                ended = True
                if UNREPLICATED:
                    check_replicated(connection)
                good = True
                return result
            except asyncpg.PostgresError as error:
                ended = True
                if error.sqlstate not in TRANSIENT or pause is None:
                    raise translated(error, lost) from error
            except LOST as error:
                if isinstance(error, asyncpg.InternalClientError):
                    connection.terminate()  # its protocol is in an undefined state
                raise lost(f"the connection to the database was lost during a statement: {reason_of(error)}") from error
            finally:
                self._busy -= 1
                if good and not (self._wanted or self._closed):
                    self._at_hand.append(connection)
                else:
                    await asyncio.shield(self._release(connection, ended=ended))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
        raise AssertionError("unreachable")

    async def _release(self, connection: asyncpg.Connection[Any], *, ended: bool) -> None:
        """Return a connection to the pool.

        A statement that was cancelled between parsing and execution leaves a transaction open on the server, which only
        another message ends.
        """
        raw = connection._con
        with suppress(*LOST):  # the pool may have closed it, which does not affect the statement
            if not ended:
                try:
                    async with asyncio.timeout(CONNECT_SECONDS):
                        await connection.execute("SELECT 1")
                except (*LOST, asyncpg.PostgresError):
                    connection.terminate()
            UNREPLICATED.discard(raw)  # it concerned the last caller
            await self._pool.release(connection)

    async def _acquire(self) -> asyncpg.Connection[Any]:
        if self._closed:
            raise ShuttingDown("the store is closed")
        while self._at_hand:
            connection = self._at_hand.pop()
            with suppress(asyncpg.InterfaceError):  # the server closed it, and the pool has it back
                if not connection.is_closed():
                    return connection
            await self._pool.release(connection)
        self._wanted += 1
        try:
            return await self._pool.acquire(timeout=CONNECT_SECONDS)
        except (*LOST, asyncpg.PostgresError) as error:
            raise StoreUnavailable(f"the database does not answer: {reason_of(error)}") from error
        finally:
            self._wanted -= 1

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    while self._at_hand:
                        await self._pool.release(self._at_hand.pop())
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()


def reason_of(error: BaseException) -> str:
    """Return a readable reason for an error of the driver."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, asyncpg.InternalClientError):
        return "the server ended the connection"
    if isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
        return "no server listens at its address"
    return str(error) or "the server ended the connection"


def translated(error: asyncpg.PostgresError, lost: type[StoreUnavailable | OutcomeUnknown]) -> FairlaneError:
    state = error.sqlstate or ""
    error.detail = None  # it may contain a row, and payloads must not be logged
    if state == _LOCKED:
        return LaneLocked(f"somebody else holds what this needs for too long: {error}")
    if state == _ELSEWHERE:
        return QueueElsewhere(str(error))
    if state.startswith(_DEFECTS):
        log.error(
            "unexpected error: the database refused a statement of this broker (%(state)s)",
            {"state": state},
            exc_info=error,
        )
        return BrokerFailed("the broker failed on this request; its log has the details")
    if state in TRANSIENT or state.startswith(_REFUSED):
        return StoreUnavailable(f"the database refused a statement for now: {error}")
    if state.startswith(("08", "57")):
        return lost(f"the database ended a statement: {error}")
    return StoreUnavailable(f"the database refused a statement: {error} ({state})")


async def open_database(
    url: str,
    *,
    connections: int,
    statement_cache: bool,
    clock: Clock | None,
    schema: str = SCHEMA,
    distributed: bool = False,
) -> Database:
    """Open a connected pool. Raises StoreUnavailable if that fails."""

    async def open_pool(settings: dict[str, str]) -> asyncpg.Pool[Any]:
        return await asyncpg.create_pool(
            url,
            init_size=1,
            min_size=0,  # otherwise the driver logs a traceback per second while the database is down
            max_size=connections,
            max_inactive_connection_lifetime=0,
            statement_cache_size=100 if statement_cache else 0,
            timeout=CONNECT_SECONDS,
            init=prepare,
            reset=_keep,
            server_settings={**settings, **(citus_sql.SETTINGS if distributed else {})},
            connection_class=connection_to(schema, distributed=distributed),
        )

    return Database(await _with_session(open_pool), clock)


async def connect(
    url: str, schema: str = SCHEMA, *, name: str = SESSION["application_name"]
) -> asyncpg.Connection[Any]:
    """Open a connection outside the pool, which the server shows by `name`. Raises StoreUnavailable if that fails."""

    async def open_one(settings: dict[str, str]) -> asyncpg.Connection[Any]:
        return await asyncpg.connect(
            url,
            timeout=CONNECT_SECONDS,
            statement_cache_size=0,
            server_settings={**settings, "application_name": name},
            connection_class=connection_to(schema),
        )

    return await _with_session(open_one)


async def _with_session(open_some: Callable[[dict[str, str]], Awaitable[T]]) -> T:
    """Open connections with session settings, or without them if a pooler refuses them."""
    try:
        try:
            return await open_some(SESSION)
        except asyncpg.PostgresError as error:
            if error.sqlstate not in _UNKNOWN_SETTINGS:
                raise
            return await open_some({"application_name": SESSION["application_name"]})
    except asyncpg.PostgresError as error:
        raise connect_error(error) from error
    except (ValueError, asyncpg.InterfaceError) as error:
        raise StoreRefused(f"cannot connect to the database: {error}; check the URL of the store") from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise StoreUnavailable(f"cannot connect to the database: {reason_of(error)}") from error
    except LOST as error:
        raise StoreUnavailable(f"cannot connect to the database: {str(error) or 'it does not answer'}") from error


def connect_error(error: asyncpg.PostgresError) -> StoreUnavailable:
    """Translate a failed connection attempt. Adds advice where waiting does not help."""
    state = error.sqlstate or ""
    for code, advice in _ADVICE.items():
        if state.startswith(code):
            return StoreRefused(f"cannot use the database: {error}; {advice}")
    hint = "; its disk may be full" if "could not write init file" in str(error) else ""
    return StoreUnavailable(f"cannot connect to the database: {error}{hint}")


async def prepare(connection: asyncpg.Connection[Any]) -> None:
    """Encode times as microseconds since 1970 on a new connection."""
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        encoder=lambda at: (at - EPOCH_2000,),
        decoder=lambda at: at[0] + EPOCH_2000,
        format="tuple",
    )


async def _keep(_connection: object) -> None:
    """Skip the reset of a connection, which saves a round trip: nothing on it needs a reset."""
