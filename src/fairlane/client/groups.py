"""Consumer groups: list, send elsewhere, delete."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

import msgspec

from fairlane.client.part import Part
from fairlane.model.group import Seek
from fairlane.model.moment import Moment
from fairlane.model.names import check_name
from fairlane.wire.base import encode
from fairlane.wire.groups import DeletedGroup, GroupSummary, SeekBody, SeekPreview, SoughtGroup, SoughtPartition


class Groups(Part):
    async def list(self, queue: str | None = None) -> List[GroupSummary]:
        """The groups of a queue, or of all: one for each group and queue."""
        groups = await self._ask(List[GroupSummary], "GET", "consumer-groups")
        return [group for group in groups if queue is None or group.queue == queue]

    async def seek(self, queue: str, group: str, seek: Seek, *, partition: str | None = None) -> int:
        """Send a group to the beginning, the end, a time or a position; how many lanes moved. Leases there end."""
        path, body = _path(queue, group), _target(seek.check())
        if partition is None:
            return (await self._ask(SoughtGroup, "POST", *path, "seek", body=body)).partitions_updated
        path += ("partitions", check_name("partition", partition))
        return int((await self._ask(SoughtPartition, "POST", *path, "seek", body=body)).updated)

    async def preview_seek(self, queue: str, group: str, seek: Seek) -> SeekPreview:
        """What a seek would do now: how many messages come again, and how many are skipped."""
        target = msgspec.json.decode(encode(_target(seek.check())))
        query = {name: "true" if value is True else value for name, value in target.items()}
        return await self._ask(SeekPreview, "GET", *_path(queue, group), "seek", query=query)

    async def delete(self, queue: str, group: str) -> int:
        """Forget a group of a queue and where it stood; how many lanes it had."""
        return (await self._ask(DeletedGroup, "DELETE", *_path(queue, group))).deleted_partitions


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
