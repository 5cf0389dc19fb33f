"""Pauses, and why a lane does not move."""

from __future__ import annotations

from fairlane.client.part import Part
from fairlane.model.names import QUEUE_MODE, check_name, name_or_none
from fairlane.wire.pauses import Explained, PauseBody, PausedThing, ResumeBody, Resumed
from fairlane.wire.pauses import Pauses as PauseList


class Pauses(Part):
    """Pausing and resuming queues, groups, partitions and lanes."""

    async def pause(self, queue: str, *, group: str | None = None, partition: str | None = None) -> None:
        """Hand out nothing of a queue, of one group, of one partition for all groups, or of one lane when both are
        named, until it is resumed. Pushes and acks go on. Raises NotFound."""
        body = PauseBody(group=name_or_none("group", group), partition=name_or_none("partition", partition))
        await self._ask(PausedThing, "POST", "queues", check_name("queue", queue), "pause", body=body)

    async def resume(self, queue: str, *, group: str | None = None, partition: str | None = None) -> bool:
        """Undo `pause` of the same; False if it was not paused. A blocked or parked lane begins its attempts anew."""
        body = ResumeBody(group=name_or_none("group", group), partition=name_or_none("partition", partition))
        return bool(await self._resume(queue, body))

    async def resume_lanes(self, queue: str, group: str = QUEUE_MODE) -> int:
        """Resume every blocked or parked lane of a group; how many."""
        return await self._resume(queue, ResumeBody(group=check_name("group", group), lanes=True))

    async def _resume(self, queue: str, body: ResumeBody) -> int:
        return (await self._ask(Resumed, "POST", "queues", check_name("queue", queue), "resume", body=body)).resumed

    async def list(self, queue: str) -> PauseList:
        """What is paused of a queue. Raises NotFound."""
        return await self._ask(PauseList, "GET", "queues", check_name("queue", queue), "pauses")

    async def explain(self, queue: str, partition: str, group: str = QUEUE_MODE) -> Explained:
        """Why a lane does not move. Raises NotFound."""
        path = ("explain", check_name("queue", queue), check_name("partition", partition))
        return await self._ask(Explained, "GET", *path, query={"group": check_name("group", group)})
