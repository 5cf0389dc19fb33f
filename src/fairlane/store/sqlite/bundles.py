"""Bundles of scheduled messages: finding one by its id, taking messages out, opening those that are due."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import apsw
import msgspec

from fairlane.model.ids import id_facts, id_key
from fairlane.model.segment import ids_of
from fairlane.store import statements
from fairlane.store.bundles import FIRE_BYTES_MAX, Opened, Progress
from fairlane.store.sqlite.dedup import FRESH_US
from fairlane.store.sqlite.rows import first, rows, value
from fairlane.store.values import NO_ID_TIME

SQL = statements.load("fairlane.store.sqlite", "scheduled.sql")
_numbers = msgspec.json.Decoder(list[int]).decode


def text_of(numbers: Sequence[int]) -> str:
    return msgspec.json.encode(numbers).decode()


class Place(msgspec.Struct, frozen=True):
    """Where a message waits: at `index` of a bundle."""

    index: int
    key: int
    due_at: int
    low: int
    high: int
    bundle_id: int
    created_at: int
    taken: int
    n: int
    keyed: bool
    partition_id: int
    queue_id: int
    partition_name: str

    def fragment(self, db: apsw.Connection) -> bytes:
        found: bytes = value(db, SQL["body"], self.bundle_id, self.low + 1, self.high - self.low)
        return found


def places(db: apsw.Connection, partition_id: int, keys: Sequence[int], id_ms: int) -> Iterator[Place]:
    """Where messages with one of these keys wait, that of an id which says this time."""
    found = rows(db, SQL["keyed_bundle"], partition_id, keys[0], keys[-1])
    if id_ms != NO_ID_TIME:
        since = id_ms * 1000
        found += rows(db, SQL["bundles_of_time"], partition_id, since, since + FRESH_US)
    for row in found:
        id, _, taken, n, *_ = row
        due, ends, held = map(_numbers, first(db, SQL["messages"], id))
        for index in range(taken, n):
            if held[index] in keys:
                low = ends[index - 1] if index else 0
                yield Place(index, held[index], due[index], low, ends[index], *row)


def place_of(db: apsw.Connection, partition_id: int, transaction_id: str) -> Place | None:
    key, id_ms = id_facts(transaction_id)
    keys = [key, id_key(transaction_id, salt=1)]
    for place in places(db, partition_id, keys, NO_ID_TIME if id_ms is None else id_ms):
        if ids_of(place.fragment(db))[1] == transaction_id:
            return place
    return None


def take_out(db: apsw.Connection, place: Place) -> bytes:
    """Take a message out of its bundle; its stored form."""
    fragment = place.fragment(db)
    _drop(db, place.bundle_id, place.n, place.taken, [place.index])
    if place.keyed:
        db.execute(SQL["delete_keys"], (place.partition_id, place.bundle_id, text_of([place.key])))
    return fragment


def put_anew(db: apsw.Connection, place: Place, at: int) -> None:
    """Let a message wait for another time, in a bundle of its own; it is found as before."""
    fragment = take_out(db, place)
    id: int = value(db, SQL["last_bundle"]) + 1
    where = (place.partition_id, place.queue_id, place.partition_name, place.created_at)
    db.execute(SQL["insert_bundle"], (id, *where, at, at, 1, place.keyed))
    columns = map(text_of, ([at], [len(fragment)], [place.key]))
    db.execute(SQL["insert_messages"], (id, *columns, fragment))
    if place.keyed:
        db.execute(SQL["insert_key"], (place.partition_id, place.key, id))


def _drop(db: apsw.Connection, id: int, n: int, taken: int, indexes: Sequence[int]) -> None:
    if taken + len(indexes) == n:
        _delete(db, id)
        return
    due, ends, keys = map(_numbers, first(db, SQL["messages"], id))
    body: bytes = value(db, SQL["body"], id, 1, ends[-1])
    for index in sorted(indexes, reverse=True):
        low, high = ends[index - 1] if index else 0, ends[index]
        body = body[:low] + body[high:]
        ends = [*ends[:index], *(end - (high - low) for end in ends[index + 1 :])]
        del due[index], keys[index]
    db.execute(SQL["change_messages"], (id, text_of(due), text_of(ends), text_of(keys), body))
    db.execute(SQL["change_bundle"], (id, len(due), due[taken], due[-1]))


def _delete(db: apsw.Connection, id: int) -> None:
    db.execute(SQL["delete_bundle"], (id,))
    db.execute(SQL["delete_messages"], (id,))


def due(db: apsw.Connection, now: int, limit: int) -> tuple[list[Opened[int]], int | None, set[int]]:
    """Bundles with up to `limit` messages that are due; from when on there may be others; which of them are keyed."""
    opened: list[Opened[int]] = []
    keyed: set[int] = set()
    size = count = 0
    for id, partition_id, queue_id, name, n, taken, has_keys, next_at in rows(db, SQL["due"], now, limit + 1):
        if count >= limit or size >= FIRE_BYTES_MAX:
            return opened, min(next_at, opened[-1].next_due or next_at), keyed
        times, ends, keys = map(_numbers, first(db, SQL["messages"], id))
        upto = min(bisect_right(times, now), taken + limit - count)
        low = ends[taken - 1] if taken else 0
        body = value(db, SQL["body"], id, low + 1, ends[upto - 1] - low)
        opened.append(
            Opened(
                *(id, partition_id, queue_id, name, n, taken, times[taken:upto]),
                next_due=times[upto] if upto < n else None,
                keys=keys[taken:upto],
                ends=[end - low for end in ends[taken:upto]],
                body=body,
            )
        )
        count += upto - taken
        size += len(body)
        if has_keys:
            keyed.add(id)
    return opened, opened[-1].next_due if opened and count >= limit else None, keyed


def proceed(db: apsw.Connection, progress: Progress[int], pause_until: int, *, keyed: bool) -> None:
    """Leave what was fired behind."""
    bundle = progress.bundle
    if keyed and progress.keys:
        db.execute(SQL["delete_keys"], (bundle.partition_id, bundle.id, text_of(progress.keys)))
    if progress.over:
        _delete(db, bundle.id)
        return
    if progress.holes:
        _drop(db, bundle.id, bundle.n, bundle.taken + progress.gone, progress.holes)
    next_at = pause_until if progress.next_at is None else progress.next_at
    db.execute(SQL["proceed"], (bundle.id, bundle.taken + progress.gone, next_at))
