"""The driver's connection, for one schema, which reports commits that a standby did not confirm."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar, NamedTuple

import asyncpg

from fairlane.errors import OutcomeUnknown
from fairlane.store.postgres import citus_sql

SCHEMA = "fairlane"
"""The schema that statements name."""
_SCHEMA_NAME = re.compile(r"\bfairlane(?=\.[a-z])|(?<=SCHEMA IF NOT EXISTS )fairlane\b|(?<=schemaname = ')fairlane\b")

_OWN_OIDS_END = 16384
"""First OID of user-defined types. Lower ones are the same on every server."""
_STANDBY_WAIT = "SyncRepWaitForLSN"
"""Function of the server in which a commit waits for a synchronous standby."""
WAL_RECORD = "pg_logical_emit_message(true, 'fairlane', '')"
"""Writes a WAL record that the commit must flush and replicate. It takes no lock and leaves no row behind."""
UNREPLICATED: set[asyncpg.Connection[Any]] = set()
"""Connections with a commit whose wait was cancelled, until `check_replicated` reports it. Nearly always empty."""


class _Asked(NamedTuple):
    """A placeholder for the statement that introspects types, if none was run."""

    name: str = "asked before"


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # the driver has no types
    """A connection that notes unreplicated commits, and does not query the server for PostgreSQL's own types.

    The driver queries them on each connection for each kind of array, which takes longer than the first push, pop and
    ack together. They are the same on every server, so one answer serves all connections of the process.
    """

    _types: ClassVar[dict[frozenset[int], Any]] = {}

    def _process_log_message(self, fields: dict[str, Any], last_query: str) -> None:
        # The name of the function is the one part of this warning that is not translated and has no other cause.
        if fields.get("R") == _STANDBY_WAIT:
            UNREPLICATED.add(self)
        super()._process_log_message(fields, last_query)

    async def _introspect_types(self, typeoids: Iterable[int], seconds: float | None) -> tuple[Any, Any]:
        asked = frozenset(typeoids)
        if asked in self._types:
            return self._types[asked], _Asked()
        types, statement = await super()._introspect_types(asked, seconds)
        if max(asked) < _OWN_OIDS_END:
            self._types[asked] = types
        return types, statement


@cache
def in_schema(statement: str, schema: str) -> str:
    """Return the statement for the tables and functions of `schema`. Statements are constants, so each is kept."""
    return _SCHEMA_NAME.sub(schema, statement)


def distributed_text(statement: str, schema: str) -> str:
    """Return the statement for `schema`, which Citus distributes."""
    return in_schema(citus_sql.statement(statement), schema)


class SchemaView:
    """A connection to a node of Citus, for the tables and functions of a schema that Citus distributes."""

    def __init__(self, connection: asyncpg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    def fetch(self, statement: str, *arguments: Any) -> Any:
        return self._connection.fetch(distributed_text(statement, self._schema), *arguments)

    def fetchval(self, statement: str, *arguments: Any) -> Any:
        return self._connection.fetchval(distributed_text(statement, self._schema), *arguments)

    def execute(self, statement: str, *arguments: Any) -> Any:
        return self._connection.execute(distributed_text(statement, self._schema), *arguments)


@cache
def connection_to(schema: str, *, distributed: bool = False) -> type[_Connection]:
    """Return the class of connections whose statements use the tables and functions of `schema`.

    `distributed` says that Citus distributes the schema.
    """
    if schema == SCHEMA:
        return _Connection

    text = distributed_text if distributed else in_schema

    class SchemaConnection(_Connection):
        def execute(self, query: str, *args: Any, **named: Any) -> Any:
            return super().execute(text(query, schema), *args, **named)

        def _execute(self, query: str, *args: Any, **named: Any) -> Any:
            # Every method of a pool's connection that returns rows ends here.
            return super()._execute(text(query, schema), *args, **named)

    return SchemaConnection


def check_replicated(connection: asyncpg.Connection[Any]) -> None:
    """Raise OutcomeUnknown if the server reported a commit of the connection whose wait for a standby was cancelled.

    The server calls such a commit successful, although it is lost if that standby is promoted.
    """
    raw = getattr(connection, "_con", connection)  # the pool wraps its connections
    if raw in UNREPLICATED:
        UNREPLICATED.discard(raw)
        raise OutcomeUnknown(
            "the database committed this, but its wait for a standby was cancelled: a failover may lose it"
        )
