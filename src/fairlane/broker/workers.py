"""Workers: they report, and are listed while they do."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

import msgspec

from fairlane.model.moment import Moment
from fairlane.model.names import check_name
from fairlane.store.contract.store import Store
from fairlane.wire.base import decoder
from fairlane.wire.workers import Worker, WorkerReport

ALIVE_SECONDS = 35
"""Three times what a worker waits between two reports, and a little more."""
KEEP_SECONDS = 24 * 3600


class Workers:
    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    async def report(self, id: str, report: WorkerReport) -> None:
        facts = msgspec.json.encode(report).decode()
        await self._store.workers.beat(self._tenant, check_name("id", id), facts, keep_seconds=KEEP_SECONDS)

    async def list(self) -> List[Worker]:
        """Those that are alive, by id."""
        seen = await self._store.workers.list(self._tenant, seconds=ALIVE_SECONDS)
        reports = [decoder(WorkerReport).decode(one.facts) for one in seen]
        return [
            Worker(id=one.id, seen_at=Moment(one.seen_at), **msgspec.structs.asdict(report))
            for one, report in zip(seen, reports, strict=True)
        ]

    async def leave(self, id: str) -> bool:
        """False if it was not known."""
        return await self._store.workers.leave(self._tenant, check_name("id", id))
