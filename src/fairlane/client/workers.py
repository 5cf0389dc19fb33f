"""Workers that are alive."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

from fairlane.client.part import Part
from fairlane.client.transport import path_of
from fairlane.model.names import check_name
from fairlane.wire.base import encode
from fairlane.wire.workers import Worker, WorkerLeft, WorkerReport
from fairlane.wire.workers import Workers as Listed


class Workers(Part):
    async def list(self) -> List[Worker]:
        """Those that reported lately."""
        return (await self._ask(Listed, "GET", "workers")).workers

    async def report(self, id: str, report: WorkerReport) -> None:
        """Tell the broker that a worker is alive, and what it does."""
        await self._transport.ask("POST", path_of("workers", check_name("id", id)), body=encode(report))

    async def leave(self, id: str) -> bool:
        """Tell it that the worker ends; False if it was not known."""
        return (await self._ask(WorkerLeft, "DELETE", "workers", check_name("id", id))).left
