"""The journal: operations that a broker accepted while its store could not take them, in the order they came.

It is not a store: it is read only to be emptied. All processes of a broker append to one file; one of them drains it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol
from uuid import UUID

import msgspec

from fairlane.model.queue import Queue
from fairlane.model.spec_version import SpecVersion

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


class Journal(Protocol):
    """The journal of a broker, as one of its processes has it. What is not async answers at once, for all processes: an
    entry that anybody was told of is seen."""

    sealed: bool
    """Whether its entries cannot be read in its file."""

    def version(self) -> int:
        """A number that is another whenever the journal was changed, by whichever process."""
        ...

    def state(self) -> JournalState: ...

    def room(self) -> int:
        """Bytes that `append` would still take."""
        ...

    def holds(self, backlogs: Iterable[Backlog]) -> set[Backlog]:
        """Those that have pending entries."""
        ...

    def drains(self) -> bool:
        """Whether this is the process that drains the journal. It is, from now on, if no other does."""
        ...

    def unsettled(self) -> set[Backlog]:
        """The backlogs in which other processes have work under way that may yet be applied: from before an entry of
        theirs is read until they said that it ended, or are gone."""
        ...

    def opened(self, entry: Entry) -> bytes:
        """The body of an entry that was read, in clear. SealError if it was sealed by a key that is not here."""
        ...

    async def append(self, entries: Sequence[NewEntry], abandoned: Collection[Backlog] = ()) -> dict[Backlog, int]:
        """Append the entries, all or none; durable when it returns, and in the order of the calls. How many are now in
        each of their backlogs. `abandoned`: see `tell`.

        JournalFull if they do not fit, on the disk or below the limit; StoreUnavailable if the file cannot be
        written."""
        ...

    async def tell(self, abandoned: Collection[Backlog]) -> None:
        """Tell who drains in which backlogs this process has abandoned work that may yet be applied."""
        ...

    async def backlogs(self) -> dict[Backlog, int]:
        """How many pending entries each backlog has."""
        ...

    async def read(self, backlogs: Sequence[Backlog], *, entries_max: int, bytes_max: int) -> list[Entry]:
        """The next entries of these backlogs, each backlog's from its first on, in the order they were accepted; at
        least one if there is any. Each backlog has one before any has two."""
        ...

    async def remove(self, entries: Sequence[Entry]) -> None:
        """They are applied, or somebody gave them up."""
        ...

    async def fail(self, entry: Entry, error: str) -> None:
        """Mark one as failed, with the reason."""
        ...

    async def find(self, id: UUID) -> Entry | None:
        """The entry of an operation, pending or failed; None if it is not there (any more)."""
        ...

    async def page(self, after: UUID, *, failed: bool | None, limit: int) -> list[Entry]:
        """Entries whose operation is greater than `after`, by it, without their bodies: those that failed,
        those that are pending, or both."""
        ...

    async def retry(self, id: UUID) -> bool:
        """Let a failed operation wait again, at the end of its backlog; False if there is none."""
        ...

    async def discard(self, id: UUID) -> bool:
        """Give up a failed operation for good; False if there is none."""
        ...

    async def adopt(self) -> None:
        """Take in what brokers that are gone left in other files of the directory, after the entries here. What cannot
        be had now is left for the next time."""
        ...

    async def save(self, *, queues: Sequence[Queue] | None = None, specs: Sequence[SpecVersion] | None = None) -> None:
        """Save what is known of queues and the specs in force, for a start without the store."""
        ...

    async def queues(self) -> list[Queue]: ...

    async def specs(self) -> list[SpecVersion]: ...

    async def close(self) -> None:
        """Idempotent."""
        ...
