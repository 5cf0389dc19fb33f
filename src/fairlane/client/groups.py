"""Consumer groups: list, seek, delete."""

from __future__ import annotations

import msgspec

from fairlane.client.resource import ClientResource
from fairlane.model.group import Seek, SeekTarget
from fairlane.model.moment import Moment
from fairlane.model.names import check_name
from fairlane.wire.base import encode
from fairlane.wire.groups import DeletedGroup, GroupSummary, SeekBody, SeekPreview, SoughtGroup, SoughtPartition


class Groups(ClientResource):
    async def all(self, queue: str | None = None) -> list[GroupSummary]:
        """Return one entry for each queue and group, of all queues or of one."""
        groups = await self._call(list[GroupSummary], "GET", "consumer-groups")
        return [group for group in groups if queue is None or group.queue == queue]

    async def seek(self, queue: str, group: str, seek: SeekTarget, *, partition: str | None = None) -> int:
        """Move a group to the beginning, the end, a time or a position.

        `seek` is a Seek, "beginning", "end", or a time as a datetime or a text. Returns the number of lanes moved.
        Leases of the moved lanes end.
        """
        path, body = _path(queue, group), _target(Seek.of(seek))
        if partition is None:
            return (await self._call(SoughtGroup, "POST", *path, "seek", body=body)).partitions_updated
        path += ("partitions", check_name("partition", partition))
        return int((await self._call(SoughtPartition, "POST", *path, "seek", body=body)).updated)

    async def preview_seek(self, queue: str, group: str, seek: SeekTarget) -> SeekPreview:
        """Return how many messages a seek would deliver again and how many it would skip. Changes nothing."""
        target = msgspec.json.decode(encode(_target(Seek.of(seek))))
        query = {name: "true" if value is True else value for name, value in target.items()}
        return await self._call(SeekPreview, "GET", *_path(queue, group), "seek", query=query)

    async def delete(self, queue: str, group: str) -> int:
        """Delete a group of a queue and its cursors. Returns the number of lanes deleted."""
        return (await self._call(DeletedGroup, "DELETE", *_path(queue, group))).deleted_partitions


def _path(queue: str, group: str) -> tuple[str, ...]:
    return "consumer-groups", check_name("group", group), "queues", check_name("queue", queue)


def _target(seek: Seek) -> SeekBody:
    match seek.to:
        case "beginning":
            return SeekBody(to_beginning=True)
        case "end":
            return SeekBody(to_end=True)
        case "time":
            return SeekBody(timestamp=Moment(seek.target))
        case _:
            return SeekBody(position=seek.target)
