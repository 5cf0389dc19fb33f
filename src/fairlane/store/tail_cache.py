"""The tail cache: bytes of segments that pops will soon ask for, so that they are not read from the store again.

These are the newest segments of queues whose consumers read new messages, segments that a pop read only in part, and
segments that several groups read.

The store alone decides which positions exist. It confirms the first position, time and checksum of each segment that a
pop claimed, and the cache only supplies the bytes of exactly this segment. Segments are immutable, and a position of a
partition is never used twice, so nothing needs to be invalidated: an entry that the store never names again is evicted
in time. Sealed messages are cached as they are stored.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from time import monotonic
from zlib import crc32

import msgspec

from fairlane.model.segment import Segment, Verified

BYTES_MAX = 64 * 1024 * 1024
_OVERHEAD = 400
"""Memory that the objects of one segment need in addition to its body."""
_END_BYTES = 44
"""Memory of the end of one message: an integer, and a place in a list that may be longer than needed."""
_FOLLOWED_SECONDS = 5.0
"""Time after a pop of new messages for which pushes to the queue are cached.

Caching takes a few percent of the time of a push, which is wasted if its messages are not read soon.
"""
_NEW_US = 10_000_000
"""Age of messages up to which their consumer counts as being at the tail."""
_QUEUES_MAX = 10_000
_LISTED_MAX = 256
"""Maximum number of partitions that one call lists for the store."""


class Tail(msgspec.Struct):
    """Consecutive segments of one partition, from position `start` to `upto` - 1. It only ever grows."""

    partition: int
    queue: int
    start: int
    upto: int
    size: int = 0
    segments: dict[int, Verified] = {}

    def append(self, segment: Verified) -> None:
        self.segments[segment.first] = segment
        self.upto = segment.first + len(segment.ends)
        self.size += _size(segment)

    def newer_half(self) -> Tail:
        """Return another tail without the older half of the segments. Callers may still use this one."""
        kept = list(self.segments.values())[(len(self.segments) + 1) // 2 :]
        half = Tail(self.partition, self.queue, kept[0].first if kept else self.upto, self.upto)
        for segment in kept:
            half.append(segment)
        return half


class CacheCounts(msgspec.Struct):
    """Counts of the cache since the process started."""

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0


class TailCache:
    """The tails of partitions: consecutive segments that this process pushed or read."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.counts = CacheCounts()
        self.tails: OrderedDict[int, Tail] = OrderedDict()
        """Tails by partition. The one that was pushed to or halved last is at the end."""
        self._of_queue: defaultdict[int, OrderedDict[int, Tail]] = defaultdict(OrderedDict)
        self._followed: dict[int, float] = {}
        """Time until which pushes to a queue are cached."""

    def limit(self, bytes_max: int) -> None:
        """Set the limit. 0 turns the cache off."""
        self.bytes_max = bytes_max
        self._evict()

    def follows(self, queue: int) -> bool:
        """Return True if pushes to the queue are cached, because its consumers read new messages."""
        return self._followed.get(queue, 0.0) > monotonic()

    def note_pop(self, queue: int, popped_at: int, created_at: int) -> None:
        """Record that a consumer got messages of this time."""
        if popped_at - created_at <= _NEW_US and self.bytes_max:
            if len(self._followed) > _QUEUES_MAX:
                self._followed.clear()
            self._followed[queue] = monotonic() + _FOLLOWED_SECONDS

    def add(self, queue: int, partition: int, segment: Verified) -> None:
        """Add a segment that the store has committed."""
        tail = self.tails.get(partition)
        if tail is not None and segment.first < tail.upto:
            return  # pushes may end in another order than the store applied them
        if tail is None or tail.upto != segment.first:
            self.forget(partition)
            tail = Tail(partition, queue, segment.first, segment.first)
        else:
            self.bytes -= tail.size
        tail.append(segment)
        self._keep(tail)
        if self.bytes > self.bytes_max:
            self._evict()

    def newest(self, queues: Iterable[int]) -> list[Tail]:
        """Return the tails of some queues that were pushed to last.

        They keep their segments while the caller has them.
        """
        known = [self._of_queue[queue] for queue in queues if queue in self._of_queue]
        tails = chain.from_iterable(reversed(each.values()) for each in known)
        return list(islice(tails, _LISTED_MAX))

    def get(self, partition: int, first: int, created_at: int, checksum: int) -> Verified | None:
        """Return the segment with this position, time and checksum. None if it is not cached."""
        tail = self.tails.get(partition)
        found = tail.segments.get(first) if tail is not None else None
        if found is None or found.created_at != created_at or found.checksum != checksum:
            self.counts.misses += 1
            return None
        self.counts.hits += 1
        self.counts.hit_bytes += len(found.body)
        return found

    def hold(self, queue: int, partition: int, segment: Segment) -> Segment:
        """Cache a segment that was read from the store and will be read again. Returns it, verified.

        Damaged bytes are returned as they are, for the check of the caller.
        """
        if not self.bytes_max or crc32(segment.body) != segment.checksum:
            return segment
        verified = Verified(segment.first, segment.created_at, segment.ends, segment.body, segment.checksum)
        self.add(queue, partition, verified)
        return verified

    def _keep(self, tail: Tail) -> None:
        """Count a tail, and make it the last to be evicted."""
        self.bytes += tail.size
        self.tails[tail.partition] = self._of_queue[tail.queue][tail.partition] = tail
        self.tails.move_to_end(tail.partition)
        self._of_queue[tail.queue].move_to_end(tail.partition)

    def forget(self, partition: int) -> None:
        """Drop the tail of a partition."""
        tail = self.tails.pop(partition, None)
        if tail is not None:
            self.bytes -= tail.size
            of_queue = self._of_queue[tail.queue]
            del of_queue[partition]
            if not of_queue:
                del self._of_queue[tail.queue]

    def _evict(self) -> None:
        """Halve the tails that were not touched for longest until the rest fits."""
        while self.bytes > self.bytes_max and self.tails:
            tail = next(iter(self.tails.values()))
            half = tail.newer_half()
            self.forget(tail.partition)
            if half.segments:
                self._keep(half)


def _size(segment: Segment) -> int:
    return len(segment.body) + _END_BYTES * len(segment.ends) + _OVERHEAD


def listed(tails: Sequence[Tail]) -> tuple[list[int], list[int], list[int]]:
    """Return the partitions, first positions and ends of tails."""
    return [one.partition for one in tails], [one.start for one in tails], [one.upto for one in tails]
