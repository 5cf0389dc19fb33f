"""Reading the log of a partition: segments by position and by time."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import Any

import apsw
import msgspec

from fairlane.errors import StoreCorrupt
from fairlane.model.ids import PartitionId
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import Segment, Verified, retry_limit_of
from fairlane.store import statements
from fairlane.store.contract.values import ClaimedLane, PopCall, PopClaim, Span
from fairlane.store.sqlite.rows import first, rows
from fairlane.store.tail_cache import TailCache

SQL = statements.load("fairlane.store.sqlite", "messages.sql")
_decode_ends = msgspec.json.Decoder(list[int]).decode


def segments(db: apsw.Connection, partition_id: int, since: int, upto: int) -> Iterator[Segment]:
    """Return the segments with positions `since` to `upto` - 1, which are read one by one."""
    return map(segment_of, db.execute(SQL["segments_between"], (partition_id, since, upto)))


class PoppedLog(msgspec.Struct):
    """The log of a queue as a pop reads it. Segments that pops ask for again come from the tail cache."""

    db: apsw.Connection
    cache: TailCache
    queue_id: int
    several_groups: bool
    """True if the queue has several groups, so that each segment will be read again."""

    def segments(self, partition_id: int, since: int, upto: int) -> Iterator[Segment]:
        """Return the segments with positions `since` to `upto` - 1, which are read one by one."""
        tail = self.cache.tails.get(partition_id)
        if tail is None or not tail.start <= since < tail.upto:
            return segments(self.db, partition_id, since, upto)
        cached_upto = min(upto, tail.upto)
        described = rows(self.db, SQL["segments_described"], partition_id, since, cached_upto)
        cached = (self.cache.get(partition_id, *one) or segment_at(self.db, partition_id, one[0]) for one in described)
        return chain(cached, segments(self.db, partition_id, cached_upto, upto)) if cached_upto < upto else cached

    def hold(self, partition_id: int, segment: Segment) -> Segment:
        """Cache a segment that will be read again."""
        return segment if type(segment) is Verified else self.cache.hold(self.queue_id, partition_id, segment)


class Popping(msgspec.Struct):
    """A pop in progress, and its counts."""

    db: apsw.Connection
    now: int
    call: PopCall
    options: QueueOptions
    log: PoppedLog
    leases_lost: int = 0
    expired: int = 0
    dead: int = 0


class Want(msgspec.Struct):
    """A claim in progress: what it may still get, and what it got."""

    claim: PopClaim
    messages: int
    partitions: int
    bytes: int
    ends_at: int
    """End of its lease."""
    lanes: list[ClaimedLane] = []
    looked_at: set[int] = set()

    @property
    def open(self) -> bool:
        return self.messages > 0 and self.bytes > 0 and self.partitions > 0

    def deliver(self, log: PoppedLog, partition_id: int, name: str, span: Span, attempts: int) -> int:
        """Add messages of a lane as far as the byte limit allows. Returns the position where they end."""
        start, upto = span
        position, size = start, 0
        found: list[Segment] = []
        for segment in log.segments(partition_id, start, upto):
            ends = segment.ends
            low, high = position - segment.first, min(len(ends), upto - segment.first)
            begin = ends[low - 1] if low else 0
            if size + ends[high - 1] - begin > self.bytes:
                fit = bisect_right(ends, begin + self.bytes - size, low, high)
                high = max(fit, low + 1) if not found else fit
            if high <= low:
                break
            partly = not found and high < len(ends)  # then the next pop reads on in this segment
            found.append(log.hold(partition_id, segment) if partly or log.several_groups else segment)
            size += ends[high - 1] - begin
            position = segment.first + high
            if high < len(ends) or size >= self.bytes:
                break
        if not found:
            raise StoreCorrupt(f"position {start} of partition {partition_id} is missing from the log")
        self.messages -= position - start
        self.bytes -= size
        self.lanes.append(
            ClaimedLane(
                partition=PartitionId(0, partition_id),  # a file has one cell
                name=name,
                first=start,
                upto=position,
                attempts=attempts,
                lease_ends_at=self.ends_at,
                segments=found,
            )
        )
        return position


def segment_at(db: apsw.Connection, partition_id: int, position: int) -> Segment:
    row = first(db, SQL["segment_at"], partition_id, position)
    segment = segment_of(row) if row else None
    if segment is None or position >= segment.first + len(segment.ends):
        raise StoreCorrupt(f"position {position} of partition {partition_id} is missing from the log")
    return segment


def segment_of(row: Any) -> Segment:
    first_pos, created_at, ends, body, checksum = row
    return Segment(first_pos, created_at, _decode_ends(ends), body, checksum)


def fragment_at(segment: Segment, position: int) -> bytes:
    """Return the stored bytes of one message, without checking them."""
    index = position - segment.first
    return segment.body[segment.ends[index - 1] if index else 0 : segment.ends[index]]


def own_retry_limit(db: apsw.Connection, partition_id: int, position: int) -> int | None:
    """Return the retry limit of a message. None if it has none of its own."""
    row = first(db, SQL["segment_at"], partition_id, position)
    segment = segment_of(row) if row else None
    if segment is None or position >= segment.first + len(segment.ends):
        return None
    return retry_limit_of(fragment_at(segment, position))


def unpack_keys(packed: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(packed) // 8}q", packed)


def first_at_or_after(db: apsw.Connection, partition_id: int, start: int, head: int, at: int) -> int:
    """Return the position of the first message created at or after `at`, or `head`.

    Creation times never decrease along the log, so this is a binary search: a scan would read every row.
    """
    low, high = start, head
    while low < high:
        middle = (low + high) // 2
        row = first(db, SQL["segment_time_at"], partition_id, middle)
        if row is None or row[0] + row[1] <= middle:
            low = middle + 1
        elif row[2] < at:
            low = row[0] + row[1]
        else:
            high = max(start, row[0])
    return low


def segment_time_at(db: apsw.Connection, partition_id: int, position: int) -> int:
    """Return the creation time of the message at a position."""
    row = first(db, SQL["segment_time_at"], partition_id, position)
    if row is None:
        raise StoreCorrupt(f"position {position} of partition {partition_id} is missing from the log")
    return int(row[2])


def keys_since(db: apsw.Connection, partition_id: int, at: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (first position, creation time, packed keys) of the segments created at or after `at`, newest first."""
    for first_pos, created_at, keys in db.execute(SQL["keys_backward"], (partition_id,)):
        if created_at < at:
            return
        yield first_pos, created_at, keys


def keys_between(
    db: apsw.Connection, partition_id: int, head: int, *, since: int, until: int
) -> Iterator[tuple[int, int, bytes]]:
    """Yield (first position, creation time, packed keys) of segments created from `since` to `until`, oldest first."""
    found = first_at_or_after(db, partition_id, 0, head, since)
    for first_pos, created_at, keys in db.execute(SQL["keys_forward"], (partition_id, found)):
        if created_at > until:
            return
        yield first_pos, created_at, keys


def positions_of(
    db: apsw.Connection, partition_id: int, head: int, keys: set[int], *, since: int, until: int
) -> list[tuple[int, int]]:
    """Return (key, position) of the messages with one of `keys`, created from `since` to `until`."""
    found = []
    for first_pos, _, packed in keys_between(db, partition_id, head, since=since, until=until):
        found += matches(keys, first_pos, packed)
    return found


def matches(keys: set[int], first_pos: int, packed: bytes) -> list[tuple[int, int]]:
    """Return (key, position) of the messages of one segment whose key is in `keys`."""
    stored = unpack_keys(packed)
    if keys.isdisjoint(stored):
        return []
    return [(key, first_pos + index) for index, key in enumerate(stored) if key in keys]


def bounds(db: apsw.Connection, partition_id: int) -> tuple[int, int] | None:
    """Return (start, head) of a partition. None if its queue was deleted."""
    found = rows(db, SQL["log_bounds"], partition_id)
    return found[0] if found else None
