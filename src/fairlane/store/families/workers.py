"""Workers: those that reported lately."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.store.families.query import Family


class Seen(NamedTuple):
    """A worker, its last report, and when that came."""

    id: str
    facts: str
    seen_at: int


class Workers(Family):
    async def beat(self, tenant: str, id: str, facts: str, *, keep_seconds: int) -> None:
        """A worker is alive and does this; those that were not for so long are forgotten."""
        await self._runner.write("workers.beat", tenant=tenant, id=id, facts=facts)
        await self._runner.write("workers.forget", seconds=keep_seconds)

    async def all(self, tenant: str, *, seconds: int) -> list[Seen]:
        """Those that were alive in the last seconds, by id."""
        return [Seen(*row) for row in await self._runner.read("workers.all", tenant=tenant, seconds=seconds)]

    async def deregister(self, tenant: str, id: str) -> bool:
        """A worker ended; False if it was not known."""
        return bool(await self._runner.write("workers.deregister", tenant=tenant, id=id))
