"""Workers: their reports, and the lists of live and lost ones."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from fairlane.broker.paging import page_of
from fairlane.broker.resource import Resource
from fairlane.model.moment import Moment
from fairlane.model.names import check_name
from fairlane.store.families.workers import Seen
from fairlane.wire.base import decoder
from fairlane.wire.workers import LiveWorker, WorkerListQuery, WorkerReport
from fairlane.wire.workers import Workers as WorkerPage

ALIVE_SECONDS = 35
"""Time for which a worker counts as alive: a little more than three intervals between reports."""
KEEP_SECONDS = 24 * 3600
"""Time for which a lost worker is remembered."""
REPLACED_SECONDS = 3600
"""Time for which a lost worker of an app with a live worker is listed."""
LOST_MAX = 100
_TOGETHER_SECONDS = 600


class LostApp(NamedTuple):
    """An app whose workers are all lost, without those that were lost long before the last one."""

    name: str
    workers: list[LiveWorker]
    """The last one first."""

    @property
    def in_hand(self) -> int:
        return sum(own.in_hand for one in self.workers for own in one.queues)

    @property
    def groups(self) -> set[tuple[str, str]]:
        """Return the (queue, group) pairs that the workers consumed."""
        return {(own.queue, own.group) for one in self.workers for own in one.queues}


class Workers(Resource):
    async def report(self, id: str, report: WorkerReport) -> None:
        facts = msgspec.json.encode(report).decode()
        await self._scope.quota.check_others()
        await self._store.workers.beat(self._tenant, check_name("id", id), facts, keep_seconds=KEEP_SECONDS)

    async def all(self) -> list[LiveWorker]:
        """Return the live workers, by id."""
        return [_shown(one) for one in await self._store.workers.all(self._tenant, seconds=ALIVE_SECONDS)]

    async def seen(self) -> tuple[list[LiveWorker], list[LiveWorker]]:
        """Return the live workers by id, and the lost ones, latest first."""
        now = await self._store.now()
        found = [_shown(one) for one in await self._store.workers.all(self._tenant, seconds=KEEP_SECONDS)]
        live = [one for one in found if now - one.seen_at <= ALIVE_SECONDS * 1_000_000]
        apps = {one.app for one in live}
        lost = [
            msgspec.structs.replace(one, lost=True)
            for one in found
            if now - one.seen_at > ALIVE_SECONDS * 1_000_000
            and (one.app not in apps or now - one.seen_at <= REPLACED_SECONDS * 1_000_000)
        ]
        return live, sorted(lost, key=lambda one: (-one.seen_at, one.id))[:LOST_MAX]

    async def lost(self) -> list[LiveWorker]:
        """Return workers that stopped reporting without leaving, latest first."""
        return (await self.seen())[1]

    async def lost_apps(self) -> list[LostApp]:
        """Return the apps that have no live worker and have lost one, the latest loss first."""
        live, lost = await self.seen()
        apps = {one.app for one in live}
        found: dict[str, LostApp] = {}
        for one in lost:
            if one.app in apps:
                continue
            app = found.setdefault(one.app, LostApp(one.app, []))
            if not app.workers or app.workers[0].seen_at - one.seen_at <= _TOGETHER_SECONDS * 1_000_000:
                app.workers.append(one)
        return list(found.values())

    async def queues(self, id: str) -> set[str]:
        """Return the queues in the last report of a worker. Empty if it is not alive."""
        return {own.queue for one in await self.all() if one.id == id for own in one.queues}

    async def page(self, query: WorkerListQuery) -> WorkerPage:
        """Return a page of live workers, with totals."""
        alive, lost = await self.seen()
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
            lost=lost,
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


def _shown(seen: Seen) -> LiveWorker:
    report = decoder(WorkerReport).decode(seen.facts)
    return LiveWorker(id=seen.id, seen_at=Moment(seen.seen_at), **msgspec.structs.asdict(report))
