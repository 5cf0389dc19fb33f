"""Pauses, and the diagnosis of a lane that does not move."""

from __future__ import annotations

from typing import Literal

from fairlane.client.resource import ClientResource
from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.names import QUEUE_MODE, check_count, check_name, name_or_none
from fairlane.wire.pauses import (
    Explained,
    GlobalPauses,
    GlobalPausesBody,
    LaneDetail,
    LanePage,
    LaneStateName,
    PauseBody,
    PausedThing,
    ResumeBody,
    Resumed,
)
from fairlane.wire.pauses import Pauses as PauseList

_PAGE = 100


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
        return bool((await self._resume(queue, body)).resumed)

    async def resume_lanes(self, queue: str, group: str = QUEUE_MODE) -> int:
        """Resume every blocked or parked lane of a group. Returns the number of lanes resumed."""
        return (await self._resume(queue, ResumeBody(group=check_name("group", group), lanes=True))).resumed

    async def skip(self, queue: str, group: str = QUEUE_MODE, *, partition: str | None = None) -> int:
        """Dead-letter the message that stops each blocked or parked lane, or one lane, and resume these lanes.

        Returns the number of messages.
        """
        name = name_or_none("partition", partition)
        body = ResumeBody(group=check_name("group", group), partition=name, lanes=name is None, skip=True)
        return (await self._resume(queue, body)).skipped

    async def _resume(self, queue: str, body: ResumeBody) -> Resumed:
        return await self._call(Resumed, "POST", "queues", check_name("queue", queue), "resume", body=body)

    async def lanes(
        self,
        queue: str,
        group: str = QUEUE_MODE,
        *,
        state: LaneStateName | Literal["unfinished"] | None = None,
        search: str | None = None,
        limit: int = 100,
    ) -> list[LaneDetail]:
        """Return up to `limit` lanes of a group by partition, in one state or with this text in the name."""
        check_count("limit", limit, least=1, most=BATCH_ITEMS_MAX)
        query = {"group": check_name("group", group), "state": state, "search": search}
        found: list[LaneDetail] = []
        after: str | None = ""
        while after is not None and len(found) < limit:
            more = {"after": after or None, "limit": min(limit - len(found), _PAGE)}
            page = await self._call(LanePage, "GET", "queues", check_name("queue", queue), "lanes", query=query | more)
            found += page.lanes
            after = page.next
        return found

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
