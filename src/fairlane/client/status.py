"""Status of a broker: its health, what its queues hold together, its journal and its settings."""

from __future__ import annotations

from fairlane.client.part import Part, decode
from fairlane.wire.queen import Health, Maintenance
from fairlane.wire.queues import Overview
from fairlane.wire.status import JournalReport
from fairlane.wire.system import SystemReport


class Status(Part):
    async def health(self) -> Health:
        """Version, store and uptime of the broker that answers. Raises Unavailable if its store is away."""
        return decode(await self._transport.ask("GET", "/health"), Health)

    async def overview(self) -> Overview:
        """What all queues hold together."""
        return await self._ask(Overview, "GET", "resources", "overview")

    async def journal(self) -> JournalReport:
        """Operations outside the store, in the journal of the broker that answers."""
        return await self._ask(JournalReport, "GET", "status", "buffers")

    async def maintenance(self) -> Maintenance:
        """Whether all pops, or all pushes, are paused."""
        return await self._ask(Maintenance, "GET", "system", "maintenance")

    async def system(self) -> SystemReport:
        """The broker that answers, its store, and the settings in force."""
        return await self._ask(SystemReport, "GET", "system")
