"""Effects: what a handler did once for a message, kept for its later attempts."""

from __future__ import annotations

import msgspec

from fairlane.broker.part import Part
from fairlane.errors import NotFound
from fairlane.model.ids import PartitionId
from fairlane.model.limits import RESULT_BYTES_MAX
from fairlane.model.message import check_json
from fairlane.model.names import check_name
from fairlane.wire.effects import Effect, EffectBody, EffectQuery


class Effects(Part):
    async def get(self, key: str, where: EffectQuery) -> Effect:
        partition = PartitionId.parse(where.partition_id)
        found = await self._store.effects.get(self._tenant, check_name("key", key), partition)
        if found is None:
            raise NotFound("there is no such effect")
        return Effect(key=key, value=msgspec.Raw(found))

    async def keep(self, key: str, effect: EffectBody) -> Effect:
        """Keep it, unless something is kept under the key; what is kept."""
        check_json("value", effect.value, bytes_max=RESULT_BYTES_MAX)
        partition, value = PartitionId.parse(effect.partition_id), bytes(effect.value)
        await self._broker.room.check_others()
        saved = await self._store.effects.keep(
            self._tenant, check_name("key", key), partition, value, seconds=effect.seconds
        )
        return Effect(key=key, value=msgspec.Raw(saved))
