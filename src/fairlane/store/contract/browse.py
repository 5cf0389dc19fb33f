"""Values of browsing between the broker and a store: partitions with messages, and messages without their payload."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId

_LIST_POSITION = re.compile(r"(\d{1,18})\.(\d{1,9}-\d{1,18})\.(\d{1,18})", re.ASCII)


class ActivePartition(msgspec.Struct, frozen=True):
    """A partition with messages. The last of them was pushed at `last_at`."""

    id: PartitionId
    queue_id: int
    name: str
    last_at: int


class FoundMessage(msgspec.Struct, frozen=True):
    """The partition and position where a message is, or may be."""

    partition: PartitionId
    position: int
    queue_id: int
    name: str
    """Name of the partition."""


class Upto(msgspec.Struct, frozen=True):
    """The upper bound of reading a partition backwards.

    It ends before the first message created at or after `until`, and below `position`.
    """

    partition: PartitionId
    until: int
    position: int = 2**62


class ListPosition(NamedTuple):
    """The position of a message in the order of a listing: by time, then by partition and position."""

    created_at: int
    partition: PartitionId
    position: int

    def __str__(self) -> str:
        return f"{self.created_at}.{self.partition}.{self.position}"

    @classmethod
    def parse(cls, text: str) -> ListPosition:
        match = _LIST_POSITION.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"{text!r:.80} is not where a page ended; use the `next` of the page before")
        return cls(int(match[1]), PartitionId.parse(match[2]), int(match[3]))


class StoredHead(msgspec.Struct, frozen=True):
    """A stored message without its payload."""

    at: ListPosition
    id: str
    transaction_id: str
    trace_id: str | None
    producer_sub: str | None = None
