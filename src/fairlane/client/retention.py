"""Retention: delete expired messages now, and see what was deleted."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.model.names import name_or_none
from fairlane.wire.retention import Deleted, RetentionHistory, RetentionRun, WentAt


class Retention(ClientResource):
    async def run(self) -> list[Deleted]:
        """Apply the retention rules of all queues now.

        Returns the number of messages deleted, by queue and rule. Raises Conflict while another broker applies them.
        """
        return (await self._call(RetentionRun, "POST", "retention", "run")).deleted

    async def history(
        self, queue: str | None = None, *, since: str | None = None, until: str | None = None
    ) -> list[WentAt]:
        """Return the deletions of the last day, or between two times such as 2026-01-31T12:00:00Z."""
        query = {"queue": name_or_none("queue", queue), "from": since, "to": until}
        return (await self._call(RetentionHistory, "GET", "retention", "history", query=query)).history
