"""Effects of handlers: what one did once for a message, kept for its later attempts."""

from __future__ import annotations

from fairlane.client.part import Part
from fairlane.model.names import check_name
from fairlane.wire.effects import Effect, EffectBody, EffectQuery


class Effects(Part):
    async def get(self, key: str, where: EffectQuery) -> Effect:
        """The effect under a key for messages of a partition. Raises NotFound."""
        query = {"partitionId": where.partition_id}
        return await self._ask(Effect, "GET", "effects", check_name("key", key), query=query)

    async def keep(self, key: str, effect: EffectBody) -> Effect:
        """Keep a value, which is JSON, unless there is one; the one that is kept."""
        return await self._ask(Effect, "POST", "effects", check_name("key", key), body=effect)
