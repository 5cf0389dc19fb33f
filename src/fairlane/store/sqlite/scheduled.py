"""Scheduled messages."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections.abc import Sequence
from typing import Any

import apsw

from fairlane.model.ids import PartitionId
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import ids_of
from fairlane.store.bundles import bundles_of, ends_of, oldest, progress_of, twins
from fairlane.store.firing import ROUNDS_MAX, Firing
from fairlane.store.sqlite import bundles
from fairlane.store.sqlite.bundles import SQL
from fairlane.store.sqlite.database import Database
from fairlane.store.sqlite.dedup import FRESH_US, Lookup, is_fresh
from fairlane.store.sqlite.lanes import parse_options
from fairlane.store.sqlite.log import SQL as LOG
from fairlane.store.sqlite.push import push
from fairlane.store.sqlite.queues import born
from fairlane.store.sqlite.rows import first, rows, value
from fairlane.store.values import WAITS, Duplicate, Duplicates, Fired, Gone, Kept, Scheduled, Slice, Waiting

FULL_PAUSE_US = 1_000_000  # a full queue's messages are tried again after this


class ScheduledMessages:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, parts: Sequence[Scheduled]) -> List[Kept | Duplicates | Gone]:
        return await self._database.write(lambda db, now: _add(db, now, parts))

    async def fire(self, *, limit: int = 1000) -> Fired:
        return await self._database.write(lambda db, now: _fire(db, now, limit))

    async def cancel(self, partition: PartitionId, transaction_id: str) -> bool:
        def work(db: apsw.Connection, now: int) -> bool:
            place = bundles.place_of(db, _id(partition), transaction_id)
            if place is not None:
                bundles.take_out(db, place)
            return place is not None

        return await self._database.write(work)

    async def reschedule(
        self, partition: PartitionId, transaction_id: str, *, due_at: int | None = None, delay_ms: int = 0
    ) -> int | None:
        def work(db: apsw.Connection, now: int) -> int | None:
            place = bundles.place_of(db, _id(partition), transaction_id)
            if place is None:
                return None
            at = now + delay_ms * 1000 if due_at is None else due_at
            bundles.put_anew(db, place, at)
            return at

        return await self._database.write(work)

    async def list(self, queue_id: int, *, after: tuple[int, str] | None = None, limit: int = 100) -> List[Waiting]:
        def work(db: apsw.Connection, now: int) -> List[Waiting]:
            found = []
            for id, name, head, due_at in rows(db, SQL["list"], queue_id, *(after or (-1, "")), limit):
                message_id, transaction_id = ids_of(head)
                found.append(Waiting(PartitionId(0, id), name, transaction_id, message_id, due_at))
            return found

        return await self._database.read(work)

    async def next_in(self) -> int | None:
        def work(db: apsw.Connection, now: int) -> int | None:
            next_at: int | None = value(db, SQL["next"])
            return None if next_at is None else next_at - now

        return await self._database.read(work)


def _id(partition: PartitionId) -> int:
    return partition.id if partition.shard == 0 else -1


def _add(db: apsw.Connection, now: int, parts: Sequence[Scheduled]) -> List[Kept | Duplicates | Gone]:
    results: List[Kept | Duplicates | Gone] = []
    kept = []
    for part in parts:
        if part.repeated and part.partition.shard == 0:
            newest = min(max(part.slice.id_times) * 1000, now + FRESH_US)
            db.execute(SQL["doubt"], (newest, part.partition.id))
        if refusal := _refusal(db, now, part.slice):
            results.append(refusal)
            continue
        kept.append(part)
        times = zip(part.due_at, part.delay_ms, strict=True)
        results.append(Kept([now + delay * 1000 if at is None else at for at, delay in times]))
    _insert(db, now, kept)
    return results


def _refusal(db: apsw.Connection, now: int, slice: Slice) -> Duplicates | Gone | None:
    log = first(db, LOG["partition_log"], slice.partition.id) if slice.partition.shard == 0 else None
    if log is None or log[0] != slice.queue_id or value(db, SQL["options"], slice.queue_id) is None:
        return Gone()
    _, head, _, newest_id_at, keyed_until, doubted_until = log
    # Ids that cannot be duplicates need no look, unless ids of their time were kept in doubt: see `push`.
    if True not in slice.given and min(slice.id_times) * 1000 > doubted_until:
        return None
    if repeated := twins(slice):
        return Duplicates(repeated)
    found: dict[int, Duplicate] = {}
    if slice.options.dedup_seconds:
        lookup = Lookup(db, slice, head=head, now=now)
        stored = lookup.run(newest_id_at=newest_id_at, keyed_until=keyed_until, doubted_until=doubted_until)
        found = {one.index: one for one in stored}
    seen: dict[int, int] = {}
    for index, given in enumerate(slice.given):
        if (given or slice.id_times[index] * 1000 <= doubted_until) and index not in found:
            if (twin := seen.setdefault(slice.keys[index], index)) != index:
                found[index] = Duplicate(index, WAITS, *ids_of(slice.fragments[twin]))
            elif place := next(
                bundles.places(db, slice.partition.id, [slice.keys[index]], slice.id_times[index]), None
            ):
                found[index] = Duplicate(index, WAITS, *ids_of(place.fragment(db)), due_at=place.due_at)
    return Duplicates([found[index] for index in sorted(found)]) if found else None


def _insert(db: apsw.Connection, now: int, parts: Sequence[Scheduled]) -> None:
    id: int = value(db, SQL["last_bundle"])
    found: List[tuple[Any, ...]] = []
    messages: List[tuple[Any, ...]] = []
    keys: List[tuple[int, int, int]] = []
    for part in parts:
        slice = part.slice
        for bundle in bundles_of(part):
            id += 1
            due = [now + at for at in bundle.due] if bundle.relative else bundle.due
            fragments = [slice.fragments[index] for index in bundle.items]
            stale = [slice.keys[index] for index in bundle.items if not is_fresh(slice.id_times[index], now)]
            keys += [(slice.partition.id, key, id) for key in stale]
            place = (slice.partition.id, slice.queue_id, part.partition_name)
            found.append((id, *place, now, due[0], due[-1], len(due), bool(stale)))
            columns = (due, ends_of(fragments), [slice.keys[index] for index in bundle.items])
            messages.append((id, *map(bundles.text_of, columns), b"".join(fragments)))
    db.executemany(SQL["insert_bundle"], found)
    db.executemany(SQL["insert_messages"], messages)
    db.executemany(SQL["insert_key"], keys)


def _fire(db: apsw.Connection, now: int, limit: int) -> Fired:
    opened, cut, keyed = bundles.due(db, now, limit)
    firing = Firing(0, oldest(opened, cut))
    for _ in range(ROUNDS_MAX):
        slices = firing.slices(_options(db, {some[0].queue_id for some in firing.left.values()}))
        if not slices:
            break
        for queue_id, name in firing.apply(slices, push(db, now, slices)):
            for partition in born(db, now, queue_id, [name]) or []:
                firing.move(name, queue_id, partition.id.id)
    firing.later += [row for some in firing.left.values() for row in some]
    for progress in progress_of(opened, firing.done, firing.later):
        bundles.proceed(db, progress, now + FULL_PAUSE_US, keyed=progress.bundle.id in keyed)
    return Fired(dict(firing.fired), len(firing.done) + len(firing.later))


def _options(db: apsw.Connection, queue_ids: set[int]) -> dict[int, QueueOptions]:
    found = {id: value(db, SQL["options"], id) for id in queue_ids}
    return {id: parse_options(text) for id, text in found.items() if text is not None}
