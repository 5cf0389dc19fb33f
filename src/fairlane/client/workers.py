"""Workers: those that are alive."""

from __future__ import annotations

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.wire import decode
from fairlane.wire.base import encode
from fairlane.wire.workers import Worker, WorkerReport
from fairlane.wire.workers import Workers as Listed


class Workers(Family):
    async def workers(self) -> list[Worker]:
        """Those that reported lately."""
        return decode(await self._transport.ask("GET", path_of("workers")), Listed).workers

    async def report(self, id: str, report: WorkerReport) -> None:
        """Tell the broker that a worker is alive, and what it does."""
        await self._transport.ask("POST", path_of("workers", id), body=encode(report))

    async def leave(self, id: str) -> None:
        """Tell it that the worker ends."""
        await self._transport.ask("DELETE", path_of("workers", id))
