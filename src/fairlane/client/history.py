"""History: what happened lately."""

from __future__ import annotations

from fairlane.client.part import Part
from fairlane.model.names import name_or_none
from fairlane.wire import history as wire


class History(Part):
    async def show(self, queue: str | None = None, *, group: str | None = None, minutes: int = 60) -> wire.History:
        """Rates and latencies of the last minutes, of all queues or of one, with the lag of a group. Raises
        NotFound."""
        query = {"queue": name_or_none("queue", queue), "group": name_or_none("group", group), "minutes": minutes}
        return await self._ask(wire.History, "GET", "history", query=query)
