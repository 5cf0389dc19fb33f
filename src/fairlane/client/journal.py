"""Failed entries of a broker's journal, which the store refused for good."""

from __future__ import annotations

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import FailedEntry
from fairlane.client.wire import decode
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.names import check_count, check_name


class _Listed(msgspec.Struct):
    entries: list[FailedEntry]


class _Done(msgspec.Struct):
    entry: FailedEntry


class Journal(Family):
    async def failed_entries(self, *, limit: int = 100) -> list[FailedEntry]:
        """Oldest first. Raises Conflict if the broker has no journal. With several workers it is one of them that
        answers, of its own journal."""
        query: dict[str, str | int] = {"limit": check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)}
        return decode(await self._transport.ask("GET", path_of("journal", "failed"), query=query), _Listed).entries

    async def retry_entry(self, id: str) -> FailedEntry:
        """Let it wait again, at the end of its partition. Raises NotFound."""
        return await self._do(id, "retry")

    async def discard_entry(self, id: str) -> FailedEntry:
        """Give it up for good. Raises NotFound."""
        return await self._do(id, "discard")

    async def _do(self, id: str, what: str) -> FailedEntry:
        path = path_of("journal", "failed", check_name("id", id), what)
        return decode(await self._transport.ask("POST", path), _Done).entry
