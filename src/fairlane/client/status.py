"""Status of a broker: its health, what its queues hold together, what happened lately, and what is worth acting on."""

from __future__ import annotations

from fairlane.client.part import Part, decode
from fairlane.model.names import name_or_none
from fairlane.wire.findings import Finding, FindingList
from fairlane.wire.history import History
from fairlane.wire.queen import Health, Maintenance
from fairlane.wire.queues import Overview
from fairlane.wire.status import JournalReport


class Status(Part):
    async def health(self) -> Health:
        """Version, store and uptime of the broker that answers. Raises Unavailable if its store is away."""
        return decode(await self._transport.ask("GET", "/health"), Health)

    async def overview(self) -> Overview:
        """What all queues hold together."""
        return await self._ask(Overview, "GET", "resources", "overview")

    async def history(self, queue: str | None = None, *, minutes: int = 1) -> History:
        """Rates and latencies of the last minutes, of all queues or of one."""
        return await self._ask(
            History, "GET", "history", query={"queue": name_or_none("queue", queue), "minutes": minutes}
        )

    async def journal(self) -> JournalReport:
        """Operations outside the store, in the journal of the broker that answers."""
        return await self._ask(JournalReport, "GET", "status", "buffers")

    async def maintenance(self) -> Maintenance:
        """Whether all pops, or all pushes, are paused."""
        return await self._ask(Maintenance, "GET", "system", "maintenance")

    async def findings(self) -> list[Finding]:
        """What is worth acting on, in sentences, the worst first."""
        return (await self._ask(FindingList, "GET", "findings")).findings
