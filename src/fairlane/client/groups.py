"""Consumer groups: list, send elsewhere, delete."""

from __future__ import annotations

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import GroupSummary
from fairlane.client.wire import decode, encode, timestamp
from fairlane.model.group import Seek
from fairlane.model.names import check_name


class _Sought(msgspec.Struct, rename="camel"):
    partitions_updated: int | None = None
    updated: bool = False


class _Deleted(msgspec.Struct, rename="camel"):
    deleted_partitions: int = 0


class Groups(Family):
    async def groups(self, queue: str | None = None) -> list[GroupSummary]:
        """The groups of a queue, or of all: one for each group and queue."""
        groups = decode(await self._transport.ask("GET", path_of("consumer-groups")), list[GroupSummary])
        return [group for group in groups if queue is None or group.queue == queue]

    async def seek(self, queue: str, group: str, seek: Seek, *, partition: str | None = None) -> int:
        """Send a group to the beginning, the end, a time or a position; how many lanes moved. Leases there end."""
        path = _path(queue, group)
        if partition is not None:
            path += ["partitions", check_name("partition", partition)]
        body = encode(_target(seek.check()))
        answer = decode(await self._transport.ask("POST", path_of(*path, "seek"), body=body), _Sought)
        return int(answer.updated) if answer.partitions_updated is None else answer.partitions_updated

    async def delete_group(self, queue: str, group: str) -> int:
        """Forget a group of a queue and where it stood; how many lanes it had."""
        return decode(await self._transport.ask("DELETE", path_of(*_path(queue, group))), _Deleted).deleted_partitions


def _path(queue: str, group: str) -> list[str]:
    return ["consumer-groups", check_name("group", group), "queues", check_name("queue", queue)]


def _target(seek: Seek) -> dict[str, bool | int | str]:
    match seek.to:
        case "beginning":
            return {"toBeginning": True}
        case "end":
            return {"toEnd": True}
        case "time":
            return {"timestamp": timestamp(seek.at)}
        case _:
            return {"position": seek.at}
