"""Workers: those that are alive."""

from __future__ import annotations

from fairlane.client.family import Family
from fairlane.wire.workers import Worker, WorkerReport
from fairlane.wire.workers import Workers as Listed


class Workers(Family):
    async def workers(self) -> list[Worker]:
        """Those that reported lately."""
        return (await self._ask(Listed, "GET", "workers")).workers

    async def report(self, id: str, report: WorkerReport) -> None:
        """Tell the broker that a worker is alive, and what it does."""
        await self._call("POST", "workers", id, body=report)

    async def leave(self, id: str) -> None:
        """Tell it that the worker ends."""
        await self._call("DELETE", "workers", id)
