"""Effects: results of side effects of handlers for a message, stored for later attempts."""

from __future__ import annotations

import msgspec

from fairlane.broker.resource import Resource
from fairlane.errors import NotFound
from fairlane.model.ids import PartitionId
from fairlane.model.limits import RESULT_BYTES_MAX
from fairlane.model.message import check_json
from fairlane.model.names import check_name
from fairlane.wire.workers import Effect, EffectBody, EffectQuery


class Effects(Resource):
    async def get(self, key: str, where: EffectQuery) -> Effect:
        partition = PartitionId.parse(where.partition_id)
        found = await self._store.effects.get(self._tenant, check_name("key", key), partition)
        if found is None:
            raise NotFound("there is no such effect")
        return Effect(key=key, value=msgspec.Raw(found))

    async def keep(self, key: str, effect: EffectBody) -> Effect:
        """Store an effect, unless one exists under the key. Returns the stored one."""
        check_json("value", effect.value, bytes_max=RESULT_BYTES_MAX)
        partition, value = PartitionId.parse(effect.partition_id), bytes(effect.value)
        await self._scope.quota.check_others()
        saved = await self._store.effects.keep(
            self._tenant, check_name("key", key), partition, value, seconds=effect.seconds
        )
        return Effect(key=key, value=msgspec.Raw(saved))
