"""The PostgreSQL store: any number of brokers on one database."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Any

import asyncpg

from fairlane.errors import InvalidRequest, StoreUnsafe
from fairlane.runtime.clock import Clock
from fairlane.store.codec import Codec
from fairlane.store.contract.store import Store
from fairlane.store.postgres import citus
from fairlane.store.postgres.connection import (
    CONNECT_SECONDS,
    Database,
    connect,
    connect_error,
    open_database,
)
from fairlane.store.postgres.doctor import SAFE
from fairlane.store.postgres.driver import SCHEMA, check_replicated
from fairlane.store.postgres.health import HealthCheck
from fairlane.store.postgres.messages import Messages
from fairlane.store.postgres.migrate import migrate
from fairlane.store.postgres.notify import Notifier
from fairlane.store.postgres.operations import Operations
from fairlane.store.postgres.query import QueryRunner
from fairlane.store.postgres.scheduled import ScheduledMessages
from fairlane.store.postgres.staged import Staged
from fairlane.store.statements import load
from fairlane.store.tail_cache import TailCache

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,50}", re.ASCII)
REPORT = load("fairlane.store.postgres", "report.sql")
log = logging.getLogger(__name__)


class PostgresStore(Store):
    """The store on PostgreSQL. `open` connects, migrates, and checks that commits are durable."""

    kind = "postgresql"
    url = ""
    schema = SCHEMA
    node: str | None = None
    """URL of the node of a Citus cluster that runs the statements. None if Citus does not distribute the schema."""

    def __init__(self, database: Database, notifier: Notifier, health: HealthCheck, tail_cache: TailCache) -> None:
        self.database = self._database = database
        self._notifier = notifier
        self._health = health
        self.tail_cache = tail_cache
        self.id_time = self._ahead = IdClock(database)
        self.messages = Messages(database, self._ahead.set_clock, tail_cache)
        runner = QueryRunner(database, self.messages)
        super().__init__(runner, self.messages)
        self.operations = Operations(runner, database, self.messages)
        self.codec = database.codec = Codec(self.data_keys, self.queues, self.id_time)
        self.scheduled = ScheduledMessages(runner, database, self.messages)
        self.staged = Staged(runner, database, self.messages)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        connections: int = 8,
        statement_cache: bool = True,
        listen_url: str | None = None,
        allow_unsafe: bool = False,
        schema: str = SCHEMA,
        cell: int = 0,
        tail_cache: TailCache | None = None,
        direct: bool = True,
    ) -> PostgresStore:
        """Connect and migrate.

        The store is the whole `schema`, so a database may hold several. The ids of queues, groups and partitions say
        in which `cell` they were created.

        Turn `statement_cache` off for a pooler without support for prepared statements. `listen_url` reaches the server
        itself if `url` leads to a pooler. `allow_unsafe` accepts a server that may lose commits.

        If Citus distributes the schema, statements run on the node that has it. With `direct` off, or if that node
        cannot be reached, they run on the node of `url`.
        """
        if not _SCHEMA_NAME.fullmatch(schema):
            raise InvalidRequest(f"{schema!r:.80} cannot be a schema; use lower-case letters, digits and _")
        distributed = await _prepare(listen_url or url, schema, cell, allow_unsafe=allow_unsafe)
        node = await citus.nearest_url(url, schema) if distributed and direct else url
        database = await open_database(
            node,
            connections=connections,
            statement_cache=statement_cache,
            clock=clock,
            schema=schema,
            distributed=distributed,
        )
        store = cls(database, Notifier(listen_url or url, schema), HealthCheck(node), tail_cache or TailCache())
        try:
            store.url = url
            store.schema = schema
            store.node = node if distributed else None
            await store.check_health()
            store._ahead.set_clock(await store.now())
            await store.queues.purge()
            await store.browse.trim()
        except BaseException:
            await store.close()
            raise
        return store

    async def now(self) -> int:
        [[at]] = await self._database.read("SELECT coalesce($1, clock_timestamp())", self._database.time())
        return int(at)

    async def check_health(self) -> None:
        await self._health.run()

    def flushes(self) -> int:
        return max(1, self._database.connections // 4)

    def connections(self) -> tuple[int, int]:
        return self._database.in_use()

    async def report(self) -> dict[str, Any]:
        [database] = await self._database.read(REPORT["database"])
        tables = await self._database.read(REPORT["tables"])
        activity = await self._database.read(REPORT["activity"])
        oldest = await self._database.read(REPORT["oldest_transaction"])
        return {
            "kind": self.kind,
            **database,
            "tables": [dict(row) for row in tables],
            "activity": [dict(row) for row in activity],
            "oldestTransaction": dict(oldest[0]) if oldest else None,
        }

    @property
    def sole_broker(self) -> bool:
        return self._notifier.sole_broker

    def listen(self, wake: Callable[[int], None]) -> None:
        self._notifier.listen(wake)

    def hint(self, queue_id: int) -> None:
        self._notifier.send(queue_id)

    async def close(self) -> None:
        await self._notifier.close()
        self._health.close()
        await self._database.close()


class IdClock:
    """A clock for new ids: at or slightly before the database's clock.

    It is the last known time of the database plus the time since. An id ahead of the database's clock would need a row
    in the keys table.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._offset = 0

    def set_clock(self, at: int) -> None:
        self._offset = at - time.monotonic_ns() // 1000

    def __call__(self) -> int:
        at = self._database.time()
        return (at if at is not None else self._offset + time.monotonic_ns() // 1000) // 1000


async def _prepare(url: str, schema: str, cell: int, *, allow_unsafe: bool) -> bool:
    """Check the server and migrate, on a separate connection. Returns True if Citus distributes the schema."""
    connection = await connect(url, schema)
    try:
        version = connection.get_server_version()
        if version.major < 15:
            raise StoreUnsafe(f"PostgreSQL {version.major} is not supported; Fairlane needs 15 or newer")
        settings = await connection.fetch("SELECT s, current_setting(s) FROM unnest($1::text[]) s", list(SAFE))
        for setting, value in settings:
            safe = SAFE[setting]
            if value in safe:
                continue
            if allow_unsafe:
                log.warning(
                    "the server has %(setting)s = %(value)s and may lose committed messages",
                    {"setting": setting, "value": value},
                )
            else:
                raise StoreUnsafe(
                    f"the server has {setting} = {value} and could lose committed messages; "
                    f"set it to {safe[0]}, or open the store with allow_unsafe"
                )
        await migrate(connection, cell)
        check_replicated(connection)
        return await citus.is_distributed(connection)
    except asyncpg.PostgresError as error:
        raise connect_error(error) from error
    finally:
        await connection.close(timeout=CONNECT_SECONDS)
