"""Workers: they report, and are listed while they do."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

import msgspec

from fairlane.broker.paging import page_of
from fairlane.broker.part import Part
from fairlane.model.moment import Moment
from fairlane.model.names import check_name
from fairlane.wire.base import decoder
from fairlane.wire.workers import Worker, WorkerListQuery, WorkerReport
from fairlane.wire.workers import Workers as WorkerPage

ALIVE_SECONDS = 35
"""Three times what a worker waits between two reports, and a little more."""
KEEP_SECONDS = 24 * 3600


class Workers(Part):
    async def report(self, id: str, report: WorkerReport) -> None:
        facts = msgspec.json.encode(report).decode()
        await self._broker.room.check_others()
        await self._store.workers.beat(self._tenant, check_name("id", id), facts, keep_seconds=KEEP_SECONDS)

    async def list(self) -> List[Worker]:
        """Those that are alive, by id."""
        seen = await self._store.workers.list(self._tenant, seconds=ALIVE_SECONDS)
        reports = [decoder(WorkerReport).decode(one.facts) for one in seen]
        return [
            Worker(id=one.id, seen_at=Moment(one.seen_at), **msgspec.structs.asdict(report))
            for one, report in zip(seen, reports, strict=True)
        ]

    async def queues(self, id: str) -> set[str]:
        """Return the queues that the worker with this id last reported; none if it is not alive."""
        return {own.queue for one in await self.list() if one.id == id for own in one.queues}

    async def page(self, query: WorkerListQuery) -> WorkerPage:
        """A page of them, with the numbers of all."""
        alive = await self.list()
        shown, total = page_of(
            alive,
            query,
            text=lambda one: " ".join([one.app, one.hostname, *(own.queue for own in one.queues)]),
            up={
                "id": lambda one: one.id,
                "app": lambda one: (one.app, one.id),
                "host": lambda one: (one.hostname, one.id),
            },
            down={"seen": lambda one: one.seen_at},
        )
        parts = [own for one in alive for own in one.queues]
        return WorkerPage(
            workers=shown,
            total=total,
            machines=len({one.hostname for one in alive}),
            in_hand=sum(own.in_hand for own in parts),
            concurrency=sum(own.concurrency for own in parts),
            handled=sum(own.handled for own in parts),
            failed=sum(own.failed for own in parts),
        )

    async def leave(self, id: str) -> bool:
        """False if it was not known."""
        return await self._store.workers.leave(self._tenant, check_name("id", id))
