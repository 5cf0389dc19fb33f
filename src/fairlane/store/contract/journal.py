"""The journal: operations that a broker accepted while its store could not take them, in the order they came.

It is not a store: it is read only to be emptied. Of the processes that share one, one reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol
from uuid import UUID

import msgspec

from fairlane.model.queue import Queue
from fairlane.model.spec_version import SpecVersion

ROW_BYTES = 100  # what an entry takes beside its body, about


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
    id: UUID | None = None
    """The operation that its caller was told; entries of earlier versions have none."""

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
    error: str | None = None
    """Why it failed; such an entry stays until somebody decides."""
    id: UUID | None = None


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


class Backlogs(Protocol):
    """The backlogs of the journal, as one process knows them."""

    def names(self) -> list[Backlog]: ...

    def hold(self, backlogs: dict[Backlog, int]) -> None:
        """So many entries more are in each."""
        ...

    def let_go(self, backlogs: Iterable[Backlog]) -> None:
        """One entry less is in each."""
        ...


class Journal(Protocol):
    @property
    def number(self) -> int:
        """Of this journal among those of its directory."""
        ...

    @property
    def owned(self) -> bool:
        """Whether this process owns the file: its `state` is that of this moment."""
        ...

    @property
    def sealed(self) -> bool:
        """Whether its entries cannot be read in its file."""
        ...

    def opened(self, entry: Entry) -> bytes:
        """The body of an entry that was read, in clear. SealError if it was sealed by a key that is not here."""
        ...

    def attach(self, backlogs: Backlogs, abandoned: Callable[[], set[Backlog]]) -> None:
        """Called once, before all else: the backlogs that have entries, as known here, and those in which this process
        has abandoned work that may yet be applied. Backlogs that get entries by other processes are added before those
        are answered."""
        ...

    def released(self, backlogs: Sequence[Backlog]) -> None:
        """The last entries of these backlogs are gone."""
        ...

    def unsettled(self) -> set[Backlog]:
        """The backlogs in which other processes have work under way that may yet be applied: from before an entry of
        theirs is read until they said that it ended."""
        ...

    async def tell(self) -> None:
        """Tell who reads the journal what this process has under way."""
        ...

    async def append(self, entries: Sequence[NewEntry]) -> None:
        """Append the entries, all or none; durable when it returns, and in the order of the calls.

        JournalFull if they do not fit, on the disk or below the limit; StoreUnavailable if the file cannot be
        written."""
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

    async def failed(self, *, limit: int) -> list[Entry]:
        """The failed ones, oldest first."""
        ...

    async def failed_entry(self, seq: int) -> Entry | None:
        """A failed one; None if it is not there."""
        ...

    async def find(self, id: UUID) -> Entry | None:
        """The entry of an operation, pending or failed; None if it is not there (any more)."""
        ...

    async def page(self, after: UUID, *, failed: bool | None, limit: int) -> list[Entry]:
        """Entries whose operation is greater than `after`, by it, without their bodies: those that failed,
        those that are pending, or both."""
        ...

    async def retry(self, entry: Entry) -> bool:
        """Let a failed entry wait again, at the end of its backlog; False if it is not there."""
        ...

    def room(self) -> int:
        """Bytes that `append` would still take."""
        ...

    async def adopt(self) -> dict[Backlog, int]:
        """Take in what processes that are gone left in journals of their own, after the entries here; how many entries
        of each backlog came. What cannot be had now is left for the next time."""
        ...

    async def backlogs(self) -> dict[Backlog, int]:
        """How many pending entries each backlog has."""
        ...

    def state(self) -> JournalState:
        """As of the last call, known without asking."""
        ...

    async def save_catalogue(self, queues: Sequence[Queue]) -> None:
        """Save what is known of queues, for a start without the store."""
        ...

    async def catalogue(self) -> list[Queue]: ...

    async def save_specs(self, specs: Sequence[SpecVersion]) -> None:
        """Save the specs in force, for the same."""
        ...

    async def specs(self) -> list[SpecVersion]: ...

    async def close(self) -> None: ...
