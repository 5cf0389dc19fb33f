"""Staged messages on PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

import asyncpg

from fairlane.errors import LaneLocked, NotFound, StoreUnavailable
from fairlane.model.ids import PartitionId
from fairlane.model.moment import Moment
from fairlane.store.contract.values import (
    Added,
    Duplicates,
    Gone,
    PartitionLocked,
    PushResult,
    ScheduledSlice,
    Slice,
)
from fairlane.store.families import staged
from fairlane.store.families.query import QueryRunner
from fairlane.store.families.staged import (
    COUNTED_MAX,
    EnqueueGrant,
    StagedBucket,
    StagedMessage,
    StagedQueue,
    StagedSigns,
    Waiting,
)
from fairlane.store.postgres.add_scheduled import add_on
from fairlane.store.postgres.connection import Database
from fairlane.store.postgres.messages import Messages, in_lock_order
from fairlane.store.statements import load

SQL = load("fairlane.store.postgres", "staged.sql")
BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of payload that are moved at once of a bucket, unless a single message has more."""
GRANTS: Final = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT EXECUTE ON FUNCTION fairlane.enqueue TO {role}",
    "GRANT EXECUTE ON FUNCTION fairlane.complete TO {role}",
)
"""Rights that a role needs besides its row in the table of grants."""
_TRIES: Final = 3


class Move:
    """A transaction that moves staged messages. Slices for partitions in `locked` are not tried."""

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        database: Database,
        messages: Messages,
        found: list[StagedMessage],
        locked: set[PartitionId],
    ) -> None:
        self.messages = found
        self.tried: list[Slice] = []
        self._connection = connection
        self._database = database
        self._all_messages = messages
        self._locked = locked

    async def lock(self, slices: Sequence[Slice]) -> None:
        self.tried = [part for part in slices if part.partition not in self._locked]
        await self._all_messages.lock(self._connection, [], self.tried)

    async def push(self, slices: Sequence[Slice]) -> list[PushResult]:
        slices = await self._database.codec.seal_slices(slices)
        free = [part for part in slices if part.partition not in self._locked]
        push = partial(self._all_messages.push_on, self._connection.fetch)
        pushed = iter(await in_lock_order(free, lambda part: (part.partition.id, 0), push))
        return [PartitionLocked() if part.partition in self._locked else next(pushed) for part in slices]

    async def schedule(self, parts: Sequence[ScheduledSlice]) -> list[Added | Duplicates | Gone | PartitionLocked]:
        free = [part for part in parts if part.partition not in self._locked]
        sealed = await self._database.codec.seal_scheduled(free)
        added = iter(await add_on(self._connection, sealed, self._database.time()))
        return [PartitionLocked() if part.partition in self._locked else next(added) for part in parts]

    async def refuse(self, queue_id: int, partition: PartitionId, position: int, error: str) -> None:
        now = self._database.time()
        await self._connection.execute(SQL["refuse"], queue_id, partition.id, position, error, now)


class Staged(staged.Staged):
    supported = True

    def __init__(self, runner: QueryRunner, database: Database, messages: Messages) -> None:
        super().__init__(runner)
        self._database = database
        self._messages = messages

    async def check(self) -> StagedSigns:
        [found] = await self._database.read(SQL["check"])
        return StagedSigns(*found)

    async def move(
        self,
        work: Callable[[staged.Move], Awaitable[Collection[StagedMessage]]],
        *,
        after: StagedBucket,
        waiting: Sequence[Waiting],
        limit: int,
    ) -> int:
        locked = await self._messages.locked.partitions()
        columns = [[one[column] for one in waiting] for column in range(3)]
        move: Move | None = None

        async def run(connection: asyncpg.Connection[Any]) -> int:
            nonlocal move
            rows = await connection.fetch(SQL["open"], *after, *columns, limit, BYTES_MAX)
            found = [StagedMessage(*row) for row in rows]
            move = Move(connection, self._database, self._messages, found, locked)
            moved = await work(move) if found else ()
            if not moved:
                return 0
            keys = [[one.tenant_id for one in moved], [one.queue for one in moved]]
            keys += [[one.bucket for one in moved], [one.id for one in moved]]
            deleted: int = await connection.fetchval(SQL["delete"], *keys)
            if deleted != len(moved):
                raise StoreUnavailable("staged messages were deleted while they were moved; they are looked up again")
            return deleted

        for _ in range(_TRIES):
            try:
                return await self._database.transact(run)
            except LaneLocked:
                found = await self._messages.locked.find(move.tried) if move is not None else set()
                if not found - locked:
                    raise
                locked |= found
        return 0

    async def by_queue(self, tenant: str | None = None) -> list[StagedQueue]:
        rows = await self._database.read(SQL["by_queue"], tenant, COUNTED_MAX)
        return [StagedQueue(of, queue, count, Moment(oldest_at)) for of, queue, count, oldest_at in rows if count]

    async def grant(self, role: str, tenant: str, queue: str) -> None:
        async def work(connection: asyncpg.Connection[Any]) -> None:
            tenant_id = await connection.fetchval(SQL["tenant"], tenant)
            if tenant_id is None:
                raise NotFound(f"there is no tenant {tenant!r:.80}")
            if not await connection.fetch(SQL["role"], role):
                raise NotFound(f"the database has no role {role!r:.80}; create it first (CREATE ROLE)")
            schema = await connection.fetchval(SQL["schema"])
            for statement in GRANTS:
                await connection.execute(statement.format(schema=schema, role=quoted(role)))
            await connection.execute(SQL["lock_grants"])  # so that it knows all patterns of sealed queues
            await connection.execute(SQL["grant"], role, tenant, queue, tenant_id)

        await self._database.transact(work)

    async def revoke(self, role: str, tenant: str, queue: str) -> bool:
        async def work(connection: asyncpg.Connection[Any]) -> bool:
            revoked = await connection.fetch(SQL["revoke"], role, tenant, queue)
            if revoked and not await connection.fetchval(SQL["is_granted"], role):
                schema = await connection.fetchval(SQL["schema"])
                for statement in reversed(GRANTS):
                    words = statement.replace("GRANT ", "REVOKE ", 1).replace(" TO ", " FROM ")
                    await connection.execute(words.format(schema=schema, role=quoted(role)))
            return bool(revoked)

        return await self._database.transact(work)

    async def grants(self) -> list[EnqueueGrant]:
        return [EnqueueGrant(*row) for row in await self._database.read(SQL["grants"])]

    async def publish_sealed(self, patterns: Sequence[str]) -> None:
        wanted = set(map(regular, patterns))

        async def work(connection: asyncpg.Connection[Any]) -> None:
            await connection.execute(SQL["lock_grants"])
            await connection.execute(SQL["unseal"], sorted(wanted))
            await connection.execute(SQL["seal"], sorted(wanted))
            await connection.execute(SQL["note_sealed"])

        if {pattern for (pattern,) in await self._database.read(SQL["sealed"])} != wanted:
            await self._database.transact(work)


def quoted(name: str) -> str:
    """Return a name as an identifier."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def regular(pattern: str) -> str:
    """Return a pattern of `fnmatchcase` as a regular expression of PostgreSQL."""
    parts = re.split(r"(\*|\?|\[!?\]?[^]]*\])", pattern)
    return "^" + "".join(map(_regular_part, parts)) + "$"


def _regular_part(part: str) -> str:
    if part in ("*", "?"):
        return {"*": ".*", "?": "."}[part]
    if len(part) > 2 and part.startswith("[") and part.endswith("]"):
        inside = part[1:-1].replace("\\", "\\\\")
        return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    return re.sub(r"(\W)", r"\\\1", part)
