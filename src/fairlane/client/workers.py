"""Workers that are alive, and the effects that their handlers store."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.client.transport import path_of
from fairlane.model.names import check_name
from fairlane.wire.base import encode
from fairlane.wire.workers import Effect, EffectBody, EffectQuery, LiveWorker, WorkerLeft, WorkerReport
from fairlane.wire.workers import Workers as Listed


class Workers(ClientResource):
    async def all(self) -> list[LiveWorker]:
        """Return the live workers: those with a recent heartbeat."""
        return (await self._call(Listed, "GET", "workers")).workers

    async def lost(self) -> list[LiveWorker]:
        """Return workers that stopped reporting without leaving, latest first."""
        return (await self._call(Listed, "GET", "workers")).lost

    async def report(self, id: str, report: WorkerReport) -> None:
        """Send the heartbeat of a worker, with its current state."""
        await self._transport.request("POST", path_of("workers", check_name("id", id)), body=encode(report))

    async def deregister(self, id: str) -> bool:
        """Report that a worker has stopped. Returns False if it was not known."""
        return (await self._call(WorkerLeft, "DELETE", "workers", check_name("id", id))).left


class Effects(ClientResource):
    async def get(self, key: str, where: EffectQuery) -> Effect:
        """Return the effect stored under a key for a partition. Raises NotFound."""
        query = {"partitionId": where.partition_id}
        return await self._call(Effect, "GET", "effects", check_name("key", key), query=query)

    async def keep(self, key: str, effect: EffectBody) -> Effect:
        """Store a JSON value under a key if the key has none yet. Returns the stored value."""
        return await self._call(Effect, "POST", "effects", check_name("key", key), body=effect)
