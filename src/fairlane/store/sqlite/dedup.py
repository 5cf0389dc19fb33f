"""Deduplication: finds messages of a slice that may be stored already.

A UUIDv7 contains its creation time. If it is pushed within FRESH_US of that, it is in a segment of that minute, so the
common case needs no row of its own. Any other id has a row in `message_keys`. The ids of deleted messages are in
`deleted_ids` until their window has passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import apsw
import msgspec

from fairlane.model.segment import ids_of
from fairlane.store.contract.values import NO_ID_TIME, Duplicate, Slice
from fairlane.store.sqlite import deleted_ids, log
from fairlane.store.sqlite.log import SQL
from fairlane.store.sqlite.rows import rows

FRESH_US: Final = 60_000_000
SLACK_US: Final = 1_000_000
FAR: Final = 2**62


def is_fresh(id_time: int, at: int) -> bool:
    """Return True if an id stored at `at` is found by its segment alone."""
    return id_time != NO_ID_TIME and 0 <= at - id_time * 1000 <= FRESH_US


class Lookup:
    """A lookup of ids of one slice in its partition."""

    def __init__(self, db: apsw.Connection, slice: Slice, *, head: int, now: int) -> None:
        self._db = db
        self._slice = slice
        self._partition_id = slice.partition.id
        self._head = head
        self._now = now
        self._since = now - slice.options.dedup_seconds * 1_000_000

    def run(self, *, newest_id_at: int, keyed_until: int, doubted_until: int) -> list[Duplicate]:
        keyed: list[int] = []
        by_time: list[int] = []
        slice, now = self._slice, self._now
        for index, given in enumerate(slice.given):
            id_time = slice.id_times[index]
            if id_time * 1000 > (newest_id_at if given else doubted_until):
                continue
            if id_time != NO_ID_TIME:
                by_time.append(index)
            if id_time * 1000 <= keyed_until or not is_fresh(id_time, now):
                keyed.append(index)
        if not keyed and not by_time:
            return []
        return self._best([*self._in_table(keyed), *self._in_log(by_time)])

    def _best(self, found: list[Duplicate]) -> list[Duplicate]:
        """Return the best match for each index: preferably with the same text, then the newest."""
        best: dict[int, Duplicate] = {}
        for duplicate in sorted(found, key=self._order):
            if deleted_ids.is_known(self._db, self._partition_id, duplicate.position):
                best[duplicate.index] = duplicate
        return [best[index] for index in sorted(best)]

    def _order(self, duplicate: Duplicate) -> tuple[bool, int]:
        same = duplicate.transaction_id == self._slice.transaction_ids[duplicate.index]
        return same, duplicate.position

    def _in_table(self, indexes: list[int]) -> Iterator[Duplicate]:
        if not indexes:
            return
        index_of = {self._slice.keys[index]: index for index in indexes}
        keys = msgspec.json.encode(list(index_of)).decode()
        for key, position, message_id, transaction_id in rows(
            self._db, SQL["known_keys"], keys, self._partition_id, self._since
        ):
            yield Duplicate(index_of[key], position, message_id, transaction_id)

    def _in_log(self, indexes: list[int]) -> Iterator[Duplicate]:
        """Search ids of the last minute together, from the head backwards, and older ones by their own minute."""
        times = {index: self._slice.id_times[index] * 1000 for index in indexes}
        recent = [index for index in indexes if self._now - times[index] <= FRESH_US]
        if recent:
            since = max(self._since, min(times[index] for index in recent))
            yield from self._scan(recent, log.keys_since(self._db, self._partition_id, since))
            yield from self._deleted(recent, since, FAR)
        old = sorted(set(indexes).difference(recent), key=times.__getitem__)
        while old:
            # Ids whose minutes overlap share one pass.
            many = 1
            while many < len(old) and times[old[many]] <= times[old[many - 1]] + FRESH_US:
                many += 1
            together, old = old[:many], old[many:]
            since = max(self._since, times[together[0]])
            until = times[together[-1]] + FRESH_US + SLACK_US
            if since <= until:
                segments = log.keys_between(self._db, self._partition_id, self._head, since=since, until=until)
                yield from self._scan(together, segments)
                yield from self._deleted(together, since, until)

    def _scan(self, indexes: list[int], segments: Iterator[tuple[int, int, bytes]]) -> Iterator[Duplicate]:
        index_of = {self._slice.keys[index]: index for index in indexes}
        keys = set(index_of)
        for first_pos, _, packed in segments:
            for key, position in log.matches(keys, first_pos, packed):
                segment = log.segment_at(self._db, self._partition_id, position)
                message_id, transaction_id = ids_of(log.fragment_at(segment, position))
                yield Duplicate(index_of[key], position, message_id, transaction_id)

    def _deleted(self, indexes: list[int], since: int, until: int) -> Iterator[Duplicate]:
        """Search ids of deleted messages whose window has not passed."""
        index_of = {self._slice.keys[index]: index for index in indexes}
        found = deleted_ids.lookup(self._db, self._partition_id, set(index_of), since=since, until=until)
        for key, position, message_id, transaction_id in found:
            yield Duplicate(index_of[key], position, message_id, transaction_id)
