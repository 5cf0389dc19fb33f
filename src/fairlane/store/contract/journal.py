"""Entries of the journal: operations that a broker accepted while its store was unavailable.

The journal is not a store: it is read only to be drained. All processes of a broker append to one file, and one of them
drains it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

ROW_BYTES = 100  # approximate overhead of an entry; the triggers of the file count the same


class Backlog(NamedTuple):
    """Operations that must stay in order: pushes to one partition or acks of one lane."""

    kind: Literal["push", "ack"]
    tenant: str
    name: str
    """Name of the queue or of the group."""
    partition: str
    """Name of the partition, or its id for acks."""


class NewEntry(NamedTuple):
    backlog: Backlog
    messages: int
    body: bytes
    id: UUID
    """Id of the operation, which the caller gets."""

    @property
    def size(self) -> int:
        """Return its approximate size in bytes."""
        return len(self.body) + ROW_BYTES


class Entry(msgspec.Struct, frozen=True):
    seq: int
    """Sequence number, in the order of acceptance."""
    backlog: Backlog
    messages: int
    body: bytes
    created_at: int
    error: str | None
    """Reason why it failed. Failed entries stay until they are retried or discarded."""
    id: UUID


class JournalState(msgspec.Struct, frozen=True, kw_only=True):
    entries: int
    messages: int
    """Messages in pending entries."""
    bytes: int
    """Bytes of all entries, including failed ones."""
    bytes_max: int
    failed: int
    oldest_at: int | None
    """Time when the oldest pending entry was accepted."""
    backlogs: int
