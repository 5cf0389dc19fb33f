"""Keys of encrypted queues, wrapped. They go with their queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.store.families.port import Family, Value, as_json


class WrappedKey(NamedTuple):
    """A key that seals messages of one queue, itself sealed by a key that the operator holds and `kek` names."""

    id: bytes
    queue_id: int
    kek: str
    wrapped: bytes


class Keys(Family):
    async def add(self, key: WrappedKey) -> None:
        await self._port.write("keys.add", **key._asdict())

    async def get(self, ids: Sequence[bytes]) -> list[WrappedKey]:
        return await self._read("keys.get", ids=as_json([id.hex() for id in ids]))

    async def of_queue(self, queue_id: int) -> list[WrappedKey]:
        return await self._read("keys.of_queue", queue_id=queue_id)

    async def under_others(self, kek: str, *, after: bytes, limit: int) -> list[WrappedKey]:
        """Keys that another key than this one wraps, by id after `after`."""
        return await self._read("keys.under_others", kek=kek, after=after, limit=limit)

    async def _read(self, statement: str, **values: Value) -> list[WrappedKey]:
        return [WrappedKey(*row) for row in await self._port.read(statement, **values)]

    async def rewrap(self, key: WrappedKey, *, under: str) -> bool:
        """Replace a key's wrapping, unless another than `under` wraps it by now."""
        return bool(await self._port.write("keys.rewrap", under=under, **key._asdict()))
