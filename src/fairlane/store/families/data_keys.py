"""The wrapped data keys of encrypted queues. Deleting a queue deletes its keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.store.families.query import Family, Value, as_json


class WrappedKey(NamedTuple):
    """A key that seals messages of one queue, wrapped by the operator's key `kek`."""

    id: bytes
    queue_id: int
    kek: str
    wrapped: bytes


class DataKeys(Family):
    async def add(self, key: WrappedKey) -> None:
        await self._runner.write("data_keys.add", **key._asdict())

    async def get(self, ids: Sequence[bytes]) -> list[WrappedKey]:
        return await self._read("data_keys.get", ids=as_json([id.hex() for id in ids]))

    async def of_queue(self, queue_id: int) -> list[WrappedKey]:
        return await self._read("data_keys.of_queue", queue_id=queue_id)

    async def wrapped_by_others(self, kek: str, *, after: bytes, limit: int) -> list[WrappedKey]:
        """Return keys that are not wrapped by `kek`, by id after `after`."""
        return await self._read("data_keys.wrapped_by_others", kek=kek, after=after, limit=limit)

    async def _read(self, statement: str, **values: Value) -> list[WrappedKey]:
        return [WrappedKey(*row) for row in await self._runner.read(statement, **values)]

    async def rewrap(self, key: WrappedKey, *, under: str) -> bool:
        """Replace the wrapping of a key, unless a key other than `under` wraps it by now."""
        return bool(await self._runner.write("data_keys.rewrap", under=under, **key._asdict()))
