"""Effects: what a handler did once for a message, kept for its later attempts."""

from __future__ import annotations

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.wire import decode
from fairlane.errors import NotFound
from fairlane.model.ids import PartitionId
from fairlane.model.names import check_name
from fairlane.wire.base import encode


class _Effect(msgspec.Struct):
    value: msgspec.Raw


class Effects(Family):
    async def effect(self, key: str, partition: PartitionId) -> bytes | None:
        """What is kept under a key for messages of a partition, as JSON; None if nothing is."""
        try:
            answer = await self._transport.ask("GET", _path(key), query={"partitionId": str(partition)})
        except NotFound:
            return None
        return bytes(decode(answer, _Effect).value)

    async def keep_effect(self, key: str, partition: PartitionId, value: bytes) -> bytes:
        """Keep a value, which is JSON, unless there is one; the one that is kept."""
        body = encode({"partitionId": str(partition), "value": msgspec.Raw(value)})
        return bytes(decode(await self._transport.ask("POST", _path(key), body=body), _Effect).value)


def _path(key: str) -> str:
    return path_of("effects", check_name("key", key))
