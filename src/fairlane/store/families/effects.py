"""Effects: what handlers did once for messages of a partition, each under a key and for a time."""

from __future__ import annotations

from fairlane.model.ids import PartitionId
from fairlane.store.families.port import Family


class Effects(Family):
    async def get(self, tenant: str, key: str, partition: PartitionId) -> bytes | None:
        found = await self._port.read("effects.get", shard=partition.shard, tenant=tenant, key=key)
        return await self._port.codec.open(partition, bytes(found[0][0]), f"effect {key}") if found else None

    async def keep(self, tenant: str, key: str, partition: PartitionId, effect: bytes, *, seconds: int) -> bytes:
        """Keep an effect, unless there is one under this key; the one that is there. Sealed as the messages of the
        partition are, if it is the tenant's. Those whose time is over go, some with each call."""
        sealed = await self._port.codec.seal(partition, effect, f"effect {key}", tenant=tenant)
        await self._port.write("effects.forget", shard=partition.shard)
        [[found]] = await self._port.write(
            "effects.keep", shard=partition.shard, tenant=tenant, key=key, value=sealed, seconds=seconds
        )
        return await self._port.codec.open(partition, bytes(found), f"effect {key}")
