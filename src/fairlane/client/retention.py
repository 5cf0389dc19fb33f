"""Retention: delete now, and look at what went."""

from __future__ import annotations

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import Deleted, WentAt
from fairlane.client.wire import decode
from fairlane.model.names import check_name


class _Run(msgspec.Struct):
    deleted: list[Deleted]


class _History(msgspec.Struct):
    history: list[WentAt]


class Retention(Family):
    async def run_retention(self) -> list[Deleted]:
        """Delete what the rules of all queues cover, now; what went, by queue and rule. Raises Conflict while another
        broker is at it."""
        return decode(await self._transport.ask("POST", path_of("retention", "run")), _Run).deleted

    async def retention_history(
        self, queue: str | None = None, *, since: str | None = None, until: str | None = None
    ) -> list[WentAt]:
        """What rules deleted in the last day, or between two times like 2026-01-31T12:00:00Z, oldest first."""
        query: dict[str, str | int] = {}
        if queue is not None:
            query["queue"] = check_name("queue", queue)
        if since is not None:
            query["from"] = since
        if until is not None:
            query["to"] = until
        return decode(await self._transport.ask("GET", path_of("retention", "history"), query=query), _History).history
