"""Effects, results of handlers that must run once per message, each stored under a key for a limited time."""

from __future__ import annotations

from fairlane.model.ids import PartitionId
from fairlane.store.families.query import Family, Value


class Effects(Family):
    async def get(self, tenant: str, key: str, partition: PartitionId) -> bytes | None:
        """Return the effect of this partition's key, or None. The same key in another partition is another effect."""
        found = await self._runner.read("effects.get", **_where(tenant, key, partition))
        return await self._runner.codec.open(partition, bytes(found[0][0]), f"effect {key}") if found else None

    async def keep(self, tenant: str, key: str, partition: PartitionId, effect: bytes, *, seconds: int) -> bytes:
        """Store an effect unless the partition has one under this key, and return the stored one.

        An effect is sealed like the partition's messages if the partition belongs to the tenant. Each call deletes some
        expired effects.
        """
        sealed = await self._runner.codec.seal(partition, effect, f"effect {key}", tenant=tenant)
        await self._runner.write("effects.forget")
        [[found]] = await self._runner.write(
            "effects.keep", **_where(tenant, key, partition), value=sealed, seconds=seconds
        )
        return await self._runner.codec.open(partition, bytes(found), f"effect {key}")


def _where(tenant: str, key: str, partition: PartitionId) -> dict[str, Value]:
    return {"tenant": tenant, "partition_id": partition.id, "key": key}
