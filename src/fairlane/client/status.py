"""Status of a broker: its health, what its queues hold together, its journal and its settings."""

from __future__ import annotations

from fairlane.client.part import Part, decode
from fairlane.client.transport import Call
from fairlane.errors import FairlaneError
from fairlane.wire.queen import Health, Maintenance
from fairlane.wire.queues import Overview
from fairlane.wire.status import JournalReport
from fairlane.wire.system import SystemReport


class Status(Part):
    async def health(self) -> Health:
        """Return version, store and uptime of the broker that answers. Its `status` is `unhealthy` while the store is
        away. Raises Unavailable if no broker answers."""
        answer = await self._transport.exchange(Call("GET", "/health", self._transport.own_key, takes=_is_health))
        if answer.status >= 300 and not _is_health(answer.body):
            raise answer.error()
        return decode(answer.body, Health)

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


def _is_health(body: bytes) -> bool:
    try:
        decode(body, Health)
    except FairlaneError:  # the answer of a proxy, or a problem
        return False
    return True
