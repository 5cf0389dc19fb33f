"""Pauses, and the diagnosis of a lane that does not move."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.model.names import QUEUE_MODE, check_name, name_or_none
from fairlane.wire.pauses import Explained, GlobalPauses, GlobalPausesBody, PauseBody, PausedThing, ResumeBody, Resumed
from fairlane.wire.pauses import Pauses as PauseList


class Pauses(ClientResource):
    """Pauses and resumes queues, groups, partitions and lanes."""

    async def pause(self, queue: str, *, group: str | None = None, partition: str | None = None) -> None:
        """Pause deliveries of a queue, a group, a partition for all groups, or a lane (group and partition).

        Pushes and acks continue. Raises NotFound.
        """
        body = PauseBody(group=name_or_none("group", group), partition=name_or_none("partition", partition))
        await self._call(PausedThing, "POST", "queues", check_name("queue", queue), "pause", body=body)

    async def resume(self, queue: str, *, group: str | None = None, partition: str | None = None) -> bool:
        """Resume what `pause` paused. Returns False if it was not paused.

        A blocked or parked lane starts again with its first attempt.
        """
        body = ResumeBody(group=name_or_none("group", group), partition=name_or_none("partition", partition))
        return bool(await self._resume(queue, body))

    async def resume_lanes(self, queue: str, group: str = QUEUE_MODE) -> int:
        """Resume every blocked or parked lane of a group. Returns the number of lanes resumed."""
        return await self._resume(queue, ResumeBody(group=check_name("group", group), lanes=True))

    async def _resume(self, queue: str, body: ResumeBody) -> int:
        return (await self._call(Resumed, "POST", "queues", check_name("queue", queue), "resume", body=body)).resumed

    async def everywhere(self) -> GlobalPauses:
        """Return whether all pops or all pushes are paused, for all queues of all tenants."""
        return await self._call(GlobalPauses, "GET", "pauses")

    async def all(self, queue: str) -> PauseList:
        """Return everything that is paused in a queue. Raises NotFound."""
        return await self._call(PauseList, "GET", "queues", check_name("queue", queue), "pauses")

    async def explain(self, queue: str, partition: str, group: str = QUEUE_MODE) -> Explained:
        """Explain why a lane does not move. Raises NotFound."""
        path = ("explain", check_name("queue", queue), check_name("partition", partition))
        return await self._call(Explained, "GET", *path, query={"group": check_name("group", group)})

    async def pause_pops(self, paused: bool) -> None:
        """Pause or resume all pops.

        While paused, every broker of the store answers pops as if its queues were empty, within two seconds.
        """
        await self._call(GlobalPauses, "POST", "pauses", body=GlobalPausesBody(pops=paused))

    async def pause_pushes(self, paused: bool) -> None:
        """Pause or resume storing pushes. While paused, brokers keep pushes in their journals.

        Raises NotAvailable if a broker has no journal.
        """
        await self._call(GlobalPauses, "POST", "pauses", body=GlobalPausesBody(pushes=paused))
