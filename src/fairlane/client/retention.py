"""Retention: delete now, and look at what went."""

from __future__ import annotations

from fairlane.client.part import Part
from fairlane.model.names import name_or_none
from fairlane.wire.retention import Deleted, RetentionHistory, RetentionRun, WentAt


class Retention(Part):
    async def run(self) -> list[Deleted]:
        """Delete what the rules of all queues cover, now; what went, by queue and rule. Raises Conflict while another
        broker is at it."""
        return (await self._ask(RetentionRun, "POST", "retention", "run")).deleted

    async def history(
        self, queue: str | None = None, *, since: str | None = None, until: str | None = None
    ) -> list[WentAt]:
        """What rules deleted in the last day, or between two times like 2026-01-31T12:00:00Z, oldest first."""
        query = {"queue": name_or_none("queue", queue), "from": since, "to": until}
        return (await self._ask(RetentionHistory, "GET", "retention", "history", query=query)).history
