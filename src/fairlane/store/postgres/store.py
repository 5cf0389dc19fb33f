"""The PostgreSQL store: any number of brokers on one database."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import asyncpg

from fairlane.errors import InvalidRequest, StoreUnsafe
from fairlane.runtime.clock import Clock
from fairlane.store.codec import Codec
from fairlane.store.contract.store import Store
from fairlane.store.postgres.connection import CONNECT_SECONDS, Database, connect, not_opened, open_database
from fairlane.store.postgres.examine import SAFE
from fairlane.store.postgres.hints import Hints
from fairlane.store.postgres.messages import Messages
from fairlane.store.postgres.migrate import migrate
from fairlane.store.postgres.operations import Operations
from fairlane.store.postgres.port import Port
from fairlane.store.postgres.question import Question
from fairlane.store.postgres.scheduled import ScheduledMessages
from fairlane.store.postgres.shards import SHARDS_MAX
from fairlane.store.statements import load

REPORT = load("fairlane.store.postgres", "report.sql")
log = logging.getLogger(__name__)


class PostgresStore(Store):
    """The store on PostgreSQL: `open` connects, migrates and checks that the server keeps what it commits."""

    kind = "postgresql"

    def __init__(self, database: Database, hints: Hints, question: Question, shards: list[int]) -> None:
        self._database = database
        self._hints = hints
        self._question = question
        self.id_time = self._ahead = IdClock(database)
        self.messages = Messages(database, shards, self._ahead.saw)
        port = Port(database, shards, self.messages)
        super().__init__(port, self.messages)
        self.operations = Operations(port, database, self.messages)
        self.codec = database.codec = Codec(self.keys, self.queues, self.id_time)
        self.scheduled = ScheduledMessages(port, database, self.messages)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        shards: int = 1,
        connections: int = 8,
        statement_cache: bool = True,
        listen_url: str | None = None,
        allow_unsafe: bool = False,
    ) -> PostgresStore:
        """`shards` counts only for a database that is empty; `statement_cache` is off for a pooler that cannot keep
        prepared statements; `listen_url` reaches the server itself when `url` leads to a pooler. `allow_unsafe`
        accepts a server that may lose what it committed."""
        if not 1 <= shards <= SHARDS_MAX:
            raise InvalidRequest(f"shards is {shards}; it must be between 1 and {SHARDS_MAX}")
        values = await _prepare(listen_url or url, shards=shards, allow_unsafe=allow_unsafe)
        database = await open_database(url, connections=connections, statement_cache=statement_cache, clock=clock)
        store = cls(database, Hints(listen_url or url), Question(url), values)
        try:
            await store.answer()
            store._ahead.saw(await store.now())
            await store.queues.purge()
            await store.browse.trim()
        except BaseException:
            await store.close()
            raise
        return store

    async def now(self) -> int:
        [[at]] = await self._database.read("SELECT coalesce($1, clock_timestamp())", self._database.time())
        return int(at)

    async def answer(self) -> None:
        await self._question.ask()

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
    def alone(self) -> bool:
        return self._hints.alone

    def listen(self, wake: Callable[[int], None]) -> None:
        self._hints.listen(wake)

    def hint(self, queue_id: int) -> None:
        self._hints.send(queue_id)

    async def close(self) -> None:
        await self._hints.close()
        self._question.close()
        await self._database.close()


class IdClock:
    """Milliseconds for new ids, at or a little before the database's clock: the last time it told us, plus what
    passed since.

    An id that lay ahead of the database's clock would have to go into the keys table.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._offset = 0

    def saw(self, at: int) -> None:
        self._offset = at - time.monotonic_ns() // 1000

    def __call__(self) -> int:
        at = self._database.time()
        return (at if at is not None else self._offset + time.monotonic_ns() // 1000) // 1000


async def _prepare(url: str, *, shards: int, allow_unsafe: bool) -> list[int]:
    """Migrate and check the server on a connection of its own; the store's shard values."""
    connection = await connect(url)
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
        return await migrate(connection, shards=shards)
    except asyncpg.PostgresError as error:
        raise not_opened(error) from error
    finally:
        await connection.close(timeout=CONNECT_SECONDS)
