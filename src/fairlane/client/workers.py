"""Workers: those that are alive, and the effects of their handlers: what one did once for a message, kept for its later
attempts."""

from __future__ import annotations

import msgspec

from fairlane.client.family import Family
from fairlane.errors import NotFound
from fairlane.model.ids import PartitionId
from fairlane.model.names import check_name
from fairlane.wire.effects import Effect, EffectBody
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

    async def effect(self, key: str, partition: PartitionId) -> bytes | None:
        """What is kept under a key for messages of a partition, as JSON; None if nothing is."""
        query = {"partitionId": str(partition)}
        try:
            return bytes((await self._ask(Effect, "GET", "effects", check_name("key", key), query=query)).value)
        except NotFound:
            return None

    async def keep_effect(self, key: str, partition: PartitionId, value: bytes) -> bytes:
        """Keep a value, which is JSON, unless there is one; the one that is kept."""
        body = EffectBody(partition_id=str(partition), value=msgspec.Raw(value))
        return bytes((await self._ask(Effect, "POST", "effects", check_name("key", key), body=body)).value)
