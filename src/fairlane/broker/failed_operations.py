"""Failed operations in the journal, which the store refused for good: listed, retried or discarded by people."""

from __future__ import annotations

import asyncio
from uuid import UUID

from fairlane.broker.journal_backlogs import JournalBacklogs
from fairlane.errors import InvalidRequest, NotFound, StoreUnavailable
from fairlane.store.contract.journal import Entry


class FailedOperations:
    """An id names the file of the journal and the entry: `<journal>-<entry>`."""

    def __init__(self, backlogs: JournalBacklogs) -> None:
        self._backlogs = backlogs
        self.journal = backlogs.journal
        self._one_by_one = asyncio.Lock()

    async def list(self, *, limit: int) -> list[Entry]:
        """Oldest first."""
        return await self.journal.failed(limit=limit)

    def id_of(self, entry: Entry) -> str:
        return f"{self.journal.number}-{entry.seq}"

    async def named(self, operation: UUID) -> str:
        """The id of the entry of a failed operation."""
        entry = await self.journal.find(operation)
        if entry is None or entry.error is None:
            raise _gone(str(operation))
        return self.id_of(entry)

    async def retry(self, id: str) -> Entry:
        """Let it wait again, at the end of its backlog."""
        async with self._one_by_one:
            entry = await self._find(id)
            self._backlogs.hold({entry.backlog: 1})
            if not await self.journal.retry(entry):
                self._backlogs.let_go([entry.backlog])
                raise _gone(id)
            return entry

    async def discard(self, id: str) -> Entry:
        """Give it up for good."""
        async with self._one_by_one:
            entry = await self._find(id)
            await self.journal.remove([entry])
            return entry

    async def _find(self, id: str) -> Entry:
        number, _, seq = id.partition("-")
        if not (number.isascii() and number.isdigit() and seq.isascii() and seq.isdigit() and len(id) < 20):
            raise InvalidRequest(f"{id!r:.80} is not the id of a failed entry; they look like 0-17")
        if int(number) != self.journal.number:
            raise StoreUnavailable(
                f"entry {id} is in the journal of another process of this broker; try again, another may answer"
            )
        entry = await self.journal.failed_entry(int(seq))
        if entry is None:
            raise _gone(id)
        return entry


def _gone(id: str) -> NotFound:
    return NotFound(f"there is no failed entry {id} in this journal (any more)")
