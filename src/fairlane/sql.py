"""Messages in your own transactions: enqueue and complete them on a connection to the PostgreSQL of the broker.

The connection is one of psycopg 3, asyncpg, SQLAlchemy or Django. A synchronous connection gets the result, an
asynchronous one an awaitable of it. Nothing is committed here: the message comes with your commit, or not at all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import SECONDS_MAX
from fairlane.model.message import Message
from fairlane.model.moment import When, micros_of, millis_of, timestamp
from fairlane.model.names import DEFAULT_PARTITION, DEFAULT_TENANT
from fairlane.model.payload import json_of

_ENQUEUE: Final = (
    "SELECT fairlane.enqueue(CAST({} AS text), CAST(CAST({} AS text) AS json), CAST({} AS text), CAST({} AS text), "
    "CAST({} AS text), CAST(CAST({} AS text) AS json), coalesce(CAST(CAST({} AS text) AS timestamptz), "
    "clock_timestamp() + CAST(CAST({} AS text) AS interval)), CAST({} AS int), CAST({} AS int), CAST({} AS text))"
)
_COMPLETE: Final = (
    "SELECT count(fairlane.complete(m ->> 'lease', m ->> 'partition', CAST(m ->> 'position' AS bigint))) "
    "FROM json_array_elements(CAST(CAST({} AS text) AS json)) m"
)
_ONLY_POSTGRES: Final = (
    "messages can be enqueued and completed in your own transactions only on PostgreSQL; push with a client instead"
)
_LIBRARIES: Final = "psycopg 3, asyncpg, SQLAlchemy or Django"


class HandlerContext(Protocol):
    """The context of a handler, with the messages that it handles."""

    messages: Sequence[Message[Any]]


def enqueue(
    connection: Any,
    queue: str,
    data: Any,
    *,
    partition: str = DEFAULT_PARTITION,
    transaction_id: str | None = None,
    type: str | None = None,
    headers: dict[str, str] | None = None,
    deliver_at: When | None = None,
    delay_ms: timedelta | int | None = None,
    priority: int | None = None,
    max_attempts: int | None = None,
    tenant: str = DEFAULT_TENANT,
) -> Any:
    """Enqueue a message in the transaction of `connection`. Returns its transactionId, or an awaitable of it.

    A broker moves the message to its queue after your commit. A push takes the same options. Raises InvalidRequest if
    the data is no JSON, and an error of the driver if the database refuses the message.
    """
    if deliver_at is not None and delay_ms is not None:
        raise InvalidRequest("deliver_at and delay_ms are two ways to say when; give one of them")
    at = None if deliver_at is None else timestamp(micros_of("deliver_at", deliver_at))
    delay = None if delay_ms is None else millis_of("delay_ms", delay_ms, most=SECONDS_MAX * 1000)
    values = (
        queue,
        json_of("the data", data).decode(),
        partition,
        transaction_id,
        type,
        None if headers is None else json_of("the headers", headers).decode(),
        at,
        None if delay is None else f"{delay} milliseconds",
        priority,
        max_attempts,
        tenant,
    )
    return _run(connection, _ENQUEUE, values)


def complete(connection: Any, messages: Message[Any] | Sequence[Message[Any]] | HandlerContext) -> Any:
    """Finish messages of a pop in the transaction of `connection`. Returns None, or an awaitable for it.

    Call it last: until your transaction ends, pushes to the partition wait. If the lease is lost, the database raises
    an error. Let it roll your transaction back, because another consumer gets the message.
    """
    if isinstance(messages, Message):
        some: Sequence[Message[Any]] = [messages]
    else:
        some = messages if isinstance(messages, Sequence) else messages.messages
    for message in some:
        if not message.lease or message.position < 0:
            raise InvalidRequest(f"message {message.transaction_id!r:.80} has no lease, so there is nothing to finish")
    rows = [{"lease": one.lease, "partition": str(one.partition_id), "position": one.position} for one in some]
    return _run(connection, _COMPLETE, (msgspec.json.encode(rows).decode(),), lambda _: None)


def _same(value: Any) -> Any:
    return value


def _run(connection: Any, statement: str, values: Sequence[Any], result: Callable[[Any], Any] = _same) -> Any:
    """Run a statement on a connection of a known library, and return `result` of its only value."""
    library = _library_of(connection)
    if library == "asyncpg":
        numbered = statement.format(*(f"${number}" for number in range(1, len(values) + 1)))
        return _awaited(connection.fetchval(numbered, *values), result)
    if library == "sqlalchemy":
        return _on_sqlalchemy(connection, statement, values, result)
    if getattr(connection, "vendor", "postgresql") != "postgresql":
        raise InvalidRequest(_ONLY_POSTGRES)
    formatted = statement.format(*["%s"] * len(values))
    if library == "psycopg" and inspect.iscoroutinefunction(connection.execute):
        return _on_async_psycopg(connection, formatted, values, result)
    with connection.cursor() as cursor:
        if library == "psycopg":
            cursor.row_factory = _tuples
        cursor.execute(formatted, values)
        return result(cursor.fetchone()[0])


def _library_of(connection: Any) -> str:
    """Return the library of a connection. Raises InvalidRequest for any other object."""
    roots = {base.__module__.partition(".")[0] for base in connection.__class__.__mro__}
    for library in ("sqlalchemy", "asyncpg", "psycopg", "django"):
        if library in roots:
            return library
    if roots & {"sqlite3", "aiosqlite", "apsw"}:
        raise InvalidRequest(_ONLY_POSTGRES)
    raise InvalidRequest(f"this takes a connection or session of {_LIBRARIES}, not {connection.__class__.__name__}")


def _tuples(_cursor: object) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return rows as tuples, whatever the connection returns otherwise."""
    return tuple


async def _awaited(value: Any, result: Callable[[Any], Any]) -> Any:
    return result(await value)


async def _on_async_psycopg(
    connection: Any, statement: str, values: Sequence[Any], result: Callable[[Any], Any]
) -> Any:
    async with connection.cursor() as cursor:
        cursor.row_factory = _tuples
        await cursor.execute(statement, values)
        return result((await cursor.fetchone())[0])


def _on_sqlalchemy(connection: Any, statement: str, values: Sequence[Any], result: Callable[[Any], Any]) -> Any:
    from sqlalchemy import text

    bind = connection if hasattr(connection, "dialect") else connection.get_bind()
    if bind.dialect.name != "postgresql":
        raise InvalidRequest(_ONLY_POSTGRES)
    names = [f"fairlane_{number}" for number in range(len(values))]
    clause = text(statement.format(*(f":{name}" for name in names)))
    executed = connection.execute(clause, dict(zip(names, values, strict=True)))
    if inspect.isawaitable(executed):
        return _awaited(executed, lambda found: result(found.scalar_one()))
    return result(executed.scalar_one())
