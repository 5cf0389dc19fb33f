"""Ids of deleted messages, which are kept until the deduplication window of their queue has passed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

import apsw
import msgspec

from fairlane.store import statements
from fairlane.store.sqlite.log import matches, unpack_keys
from fairlane.store.sqlite.rows import rows, value

SQL = statements.load("fairlane.store.sqlite", "deleted_ids.sql")
_decode_ends = msgspec.json.Decoder(list[int]).decode
_NONE: Final = bytes(16)
_QUOTED: Final = re.compile(rb'"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"')


def is_known(db: apsw.Connection, partition_id: int, position: int) -> bool:
    """Return True if an id that was found at a position still counts."""
    return bool(value(db, SQL["is_known"], partition_id, position))


def lookup(
    db: apsw.Connection, partition_id: int, keys: set[int], *, since: int, until: int
) -> Iterator[tuple[int, int, str, str]]:
    """Yield (key, position, message id, transactionId) of deleted messages created from `since` to `until`."""
    for first_pos, packed, message_ids, transaction_ids in db.execute(SQL["between"], (partition_id, since, until)):
        for key, position in matches(keys, first_pos, packed):
            bounds = slice((position - first_pos) * 16, (position - first_pos + 1) * 16)
            raw = (message_ids if transaction_ids is None else transaction_ids)[bounds]
            if raw != _NONE:
                yield key, position, str(UUID(bytes=message_ids[bounds])), str(UUID(bytes=raw))


def trim(db: apsw.Connection, now: int, partition_id: int, start: int, cleared: int, limit: int) -> int:
    """Remove up to `limit` segments below the start, or ids after a clear. Returns the number of rows."""
    seconds: int = value(db, SQL["window"], partition_id) or 0
    gone, forgotten = [], []
    for rowid, first_pos, created_at, keys, ends, body in db.execute(
        SQL["segments_to_trim"], (partition_id, start, limit)
    ):
        gone.append((rowid,))
        forget_at = created_at + seconds * 1_000_000
        if forget_at > now and first_pos >= cleared:
            remembered = (partition_id, created_at, first_pos, forget_at, keys, *_ids(_decode_ends(ends), body))
            db.execute(SQL["remember"], remembered)
        else:
            forgotten.append((partition_id, first_pos, keys))
    db.executemany(SQL["delete_segment"], gone)
    _forget_keys(db, forgotten)
    if len(gone) == limit or not cleared:
        return len(gone)
    return len(gone) + _forget(db, rows(db, SQL["cleared"], partition_id, cleared, limit - len(gone)))


def forget(db: apsw.Connection, now: int, limit: int) -> int:
    """Remove ids whose window has passed. Returns the number of rows. The next trim removes their results."""
    overdue = rows(db, SQL["overdue"], now, limit)
    db.executemany(SQL["to_trim"], {(id,) for _, id, _, _ in overdue})
    return _forget(db, overdue)


def trim_beside(db: apsw.Connection, partition_id: int, limit: int) -> int:
    """Remove results and marks without a message or an id. Returns the number of rows."""
    known_from = value(db, SQL["first_known"], partition_id)
    before = db.total_changes()
    for statement in ("trim_results", "trim_cancellations", "trim_skips"):
        db.execute(SQL[statement], (partition_id, known_from, limit))
    return db.total_changes() - before


def _ids(ends: list[int], body: bytes) -> tuple[bytes, bytes | None]:
    """Return the ids in a segment, in compact form. They are at the beginning of each message."""
    starts = [0, *ends[:-1]]
    texts = [body[start + 7 : start + 43] for start in starts]
    quoted = [body[start + 61 : start + 99] for start in starts]
    message_ids = bytes.fromhex(b"".join(texts).decode().replace("-", ""))
    if quoted == [b'"%b"' % text for text in texts]:
        return message_ids, None
    return message_ids, b"".join(
        [UUID(one[1:-1].decode()).bytes if _QUOTED.fullmatch(one) else _NONE for one in quoted]
    )


def _forget(db: apsw.Connection, some: Sequence[tuple[int, int, int, bytes]]) -> int:
    db.executemany(SQL["forget"], [(rowid,) for rowid, *_ in some])
    _forget_keys(db, [(id, first_pos, keys) for _, id, first_pos, keys in some])
    return len(some)


def _forget_keys(db: apsw.Connection, segments: Sequence[tuple[int, int, bytes]]) -> None:
    """Remove the rows of these segments from `message_keys`."""
    keyed = {id for id in {id for id, _, _ in segments} if value(db, SQL["keyed"], id)}
    for partition_id, first_pos, packed in segments:
        if partition_id in keyed:
            keys = unpack_keys(packed)
            upto = first_pos + len(keys)
            db.executemany(SQL["forget_key"], [(partition_id, key, first_pos, upto) for key in keys])
