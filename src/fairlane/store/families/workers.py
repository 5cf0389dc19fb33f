"""Workers that reported recently."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.store.families.query import Family


class Seen(NamedTuple):
    """A worker, its last report, and the time of that report."""

    id: str
    facts: str
    seen_at: int


class Workers(Family):
    async def beat(self, tenant: str, id: str, facts: str, *, keep_seconds: int) -> None:
        """Store the report of a worker, and delete workers without a report for `keep_seconds`."""
        await self._runner.write("workers.beat", tenant=tenant, id=id, facts=facts)
        await self._runner.write("workers.forget", seconds=keep_seconds)

    async def all(self, tenant: str, *, seconds: int) -> list[Seen]:
        """Return the workers that reported in the last `seconds`, by id."""
        return [Seen(*row) for row in await self._runner.read("workers.all", tenant=tenant, seconds=seconds)]

    async def deregister(self, tenant: str, id: str) -> bool:
        """Delete a worker that stopped. Returns False if it is unknown."""
        return bool(await self._runner.write("workers.deregister", tenant=tenant, id=id))
