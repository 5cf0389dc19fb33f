"""Workers: their reports, and the list of live ones."""

from __future__ import annotations

import msgspec

from fairlane.broker.paging import page_of
from fairlane.broker.resource import Resource
from fairlane.model.moment import Moment
from fairlane.model.names import check_name
from fairlane.wire.base import decoder
from fairlane.wire.workers import LiveWorker, WorkerListQuery, WorkerReport
from fairlane.wire.workers import Workers as WorkerPage

ALIVE_SECONDS = 35
"""Time for which a worker counts as alive: a little more than three intervals between reports."""
KEEP_SECONDS = 24 * 3600


class Workers(Resource):
    async def report(self, id: str, report: WorkerReport) -> None:
        facts = msgspec.json.encode(report).decode()
        await self._scope.quota.check_others()
        await self._store.workers.beat(self._tenant, check_name("id", id), facts, keep_seconds=KEEP_SECONDS)

    async def all(self) -> list[LiveWorker]:
        """Return the live workers, by id."""
        seen = await self._store.workers.all(self._tenant, seconds=ALIVE_SECONDS)
        reports = [decoder(WorkerReport).decode(one.facts) for one in seen]
        return [
            LiveWorker(id=one.id, seen_at=Moment(one.seen_at), **msgspec.structs.asdict(report))
            for one, report in zip(seen, reports, strict=True)
        ]

    async def queues(self, id: str) -> set[str]:
        """Return the queues in the last report of a worker. Empty if it is not alive."""
        return {own.queue for one in await self.all() if one.id == id for own in one.queues}

    async def page(self, query: WorkerListQuery) -> WorkerPage:
        """Return a page of live workers, with totals."""
        alive = await self.all()
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

    async def deregister(self, id: str) -> bool:
        """Remove a worker. Returns False if it is unknown."""
        return await self._store.workers.deregister(self._tenant, check_name("id", id))
