"""Entries of the journal: operations that a broker accepted while its store could not take them, as they came.

It is not a store: it is read only to be emptied. All processes of a broker append to one file; one of them drains it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

ROW_BYTES = 100  # what an entry takes beside its body, about; the triggers of the file count the same


class Backlog(NamedTuple):
    """A backlog: the operations that stay in order, pushes to one partition or acks of one lane."""

    kind: Literal["push", "ack"]
    tenant: str
    name: str
    """Of the queue, or of the group."""
    partition: str
    """Its name, or its id for acks."""


class NewEntry(NamedTuple):
    backlog: Backlog
    messages: int
    body: bytes
    id: UUID
    """The operation that its caller is told."""

    @property
    def size(self) -> int:
        """Bytes it takes, about."""
        return len(self.body) + ROW_BYTES


class Entry(msgspec.Struct, frozen=True):
    seq: int
    """Rises in the order in which entries were accepted."""
    backlog: Backlog
    messages: int
    body: bytes
    created_at: int
    error: str | None
    """Why it failed; such an entry stays until somebody decides."""
    id: UUID


class JournalState(msgspec.Struct, frozen=True, kw_only=True):
    entries: int
    messages: int
    """In those entries; both without the failed ones."""
    bytes: int
    """Of all entries, the failed ones as well."""
    bytes_max: int
    failed: int
    oldest_at: int | None
    """When the oldest pending entry was accepted."""
    backlogs: int
