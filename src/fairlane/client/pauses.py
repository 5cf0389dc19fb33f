"""Pauses, and why a lane does not move."""

from __future__ import annotations

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import Explained, Pauses
from fairlane.client.wire import decode, encode
from fairlane.model.names import QUEUE_MODE, check_name


class _Scope(msgspec.Struct, omit_defaults=True):
    group: str | None = None
    partition: str | None = None
    lanes: bool = False


class _Resumed(msgspec.Struct):
    resumed: int = 0


class Pausing(Family):
    """Pausing and resuming queues, groups, partitions and lanes."""

    async def pause(self, queue: str, *, group: str | None = None, partition: str | None = None) -> None:
        """Hand out nothing of a queue, of one group, of one partition for all groups, or of one lane when both are
        named, until it is resumed. Pushes and acks go on. Raises NotFound."""
        await self._transport.ask("POST", _path(queue, "pause"), body=encode(_scope(group, partition)))

    async def resume(self, queue: str, *, group: str | None = None, partition: str | None = None) -> bool:
        """Undo `pause` of the same; False if it was not paused. A blocked or parked lane begins its attempts anew."""
        answer = await self._transport.ask("POST", _path(queue, "resume"), body=encode(_scope(group, partition)))
        return bool(decode(answer, _Resumed).resumed)

    async def resume_lanes(self, queue: str, group: str = QUEUE_MODE) -> int:
        """Resume every blocked or parked lane of a group; how many."""
        body = encode(_Scope(check_name("group", group), lanes=True))
        return decode(await self._transport.ask("POST", _path(queue, "resume"), body=body), _Resumed).resumed

    async def pauses(self, queue: str) -> Pauses:
        """What is paused of a queue. Raises NotFound."""
        return decode(await self._transport.ask("GET", _path(queue, "pauses")), Pauses)

    async def explain(self, queue: str, partition: str, group: str = QUEUE_MODE) -> Explained:
        """Why a lane does not move. Raises NotFound."""
        path = path_of("explain", check_name("queue", queue), check_name("partition", partition))
        return decode(await self._transport.ask("GET", path, query={"group": check_name("group", group)}), Explained)


def _scope(group: str | None, partition: str | None) -> _Scope:
    for what, name in (("group", group), ("partition", partition)):
        if name is not None:
            check_name(what, name)
    return _Scope(group, partition)


def _path(queue: str, verb: str) -> str:
    return path_of("queues", check_name("queue", queue), verb)
