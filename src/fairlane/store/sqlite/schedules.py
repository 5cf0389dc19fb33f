"""Scheduled messages."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections.abc import Sequence

import apsw

from fairlane.model.ids import PartitionId, id_key
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import ids_of
from fairlane.store import statements
from fairlane.store.firing import ROUNDS_MAX, Due, Firing
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.dedup import Lookup
from fairlane.store.sqlite.lanes import parse_options
from fairlane.store.sqlite.log import SQL as LOG
from fairlane.store.sqlite.push import push
from fairlane.store.sqlite.queues import born
from fairlane.store.sqlite.rows import first, rows, value
from fairlane.store.values import Duplicate, Fired, Gone, Kept, Scheduled, Waiting

SQL = statements.load("fairlane.store.sqlite", "schedules.sql")
FULL_PAUSE_US = 1_000_000  # a full queue's messages are tried again after this


class Schedules:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, parts: Sequence[Scheduled]) -> List[List[Kept | Duplicate | Gone]]:
        return await self._database.write(lambda db, now: [_add(db, now, part) for part in parts])

    async def fire(self, *, limit: int = 1000) -> Fired:
        return await self._database.write(lambda db, now: _fire(db, now, limit))

    async def cancel(self, partition: PartitionId, transaction_id: str) -> bool:
        key = _key(partition, transaction_id)
        return bool(await self._database.write(lambda db, now: rows(db, SQL["cancel"], *key)))

    async def reschedule(
        self, partition: PartitionId, transaction_id: str, *, due_at: int | None = None, delay_ms: int = 0
    ) -> int | None:
        def work(db: apsw.Connection, now: int) -> int | None:
            at = now + delay_ms * 1000 if due_at is None else due_at
            moved = rows(db, SQL["reschedule"], *_key(partition, transaction_id), at)
            return at if moved else None

        return await self._database.write(work)

    async def list(self, queue_id: int, *, after: tuple[int, str] | None = None, limit: int = 100) -> List[Waiting]:
        def work(db: apsw.Connection, now: int) -> List[Waiting]:
            found = rows(db, SQL["list"], queue_id, *(after or (-1, "")), limit)
            return [Waiting(PartitionId(0, id), *rest) for id, *rest in found]

        return await self._database.read(work)

    async def next_in(self) -> int | None:
        def work(db: apsw.Connection, now: int) -> int | None:
            due_at: int | None = value(db, SQL["next"])
            return None if due_at is None else due_at - now

        return await self._database.read(work)


def _key(partition: PartitionId, transaction_id: str) -> tuple[int, int, int, str]:
    id = partition.id if partition.shard == 0 else -1
    return id, id_key(transaction_id), id_key(transaction_id, salt=1), transaction_id


def _add(db: apsw.Connection, now: int, part: Scheduled) -> List[Kept | Duplicate | Gone]:
    slice = part.slice
    log = first(db, LOG["partition_log"], slice.partition.id) if slice.partition.shard == 0 else None
    if log is None or log[0] != slice.queue_id or value(db, SQL["options"], slice.queue_id) is None:
        return [Gone()] * len(slice.fragments)
    stored: dict[int, Duplicate] = {}
    if slice.options.dedup_seconds and True in slice.given:
        _, head, _, newest_id_at, keyed_until = log[:5]
        found = Lookup(db, slice, head=head, now=now).run(newest_id_at=newest_id_at, keyed_until=keyed_until)
        stored = {one.index: one for one in found}
    return [stored.get(index) or _keep(db, now, part, index) for index in range(len(slice.fragments))]


def _keep(db: apsw.Connection, now: int, part: Scheduled, index: int) -> Kept | Duplicate:
    slice = part.slice
    key = slice.keys[index]
    message_id, transaction_id = ids_of(slice.fragments[index])
    known = first(db, SQL["same_key"], slice.partition.id, key)
    if known is not None and known[0] != message_id:
        return Duplicate(index, -1, *known)
    due_at = part.due_at[index]
    at = now + part.delay_ms[index] * 1000 if due_at is None else due_at
    if known is None:
        row = (at, message_id, slice.partition.id, slice.queue_id, part.partition_name, key, slice.id_times[index])
        db.execute(SQL["insert"], (*row, slice.given[index], transaction_id, slice.fragments[index]))
    return Kept(at)


def _fire(db: apsw.Connection, now: int, limit: int) -> Fired:
    firing = Firing(0, [Due(*row) for row in rows(db, SQL["due"], now, limit)])
    kept = {(row.partition_id, row.message_id): row.key for some in firing.left.values() for row in some}
    for _ in range(ROUNDS_MAX):
        slices = firing.slices(_options(db, {some[0].queue_id for some in firing.left.values()}))
        if not slices:
            break
        for queue_id, name in firing.apply(slices, push(db, now, slices)):
            for partition in born(db, now, queue_id, [name]) or []:
                firing.move(name, queue_id, partition.id.id)
    firing.later += [row for some in firing.left.values() for row in some]
    db.executemany(SQL["done"], [(row.partition_id, kept[row.partition_id, row.message_id]) for row in firing.done])
    for row in firing.later:
        key = kept[row.partition_id, row.message_id]
        db.execute(SQL["postpone"], (row.partition_id, key, now + FULL_PAUSE_US))
    return Fired(dict(firing.fired), len(firing.done) + len(firing.later))


def _options(db: apsw.Connection, queue_ids: set[int]) -> dict[int, QueueOptions]:
    found = {id: value(db, SQL["options"], id) for id in queue_ids}
    return {id: parse_options(text) for id, text in found.items() if text is not None}
