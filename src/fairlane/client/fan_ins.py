"""Fan-ins: the progress of messages that were pushed together, with a callback after the ends of all of them."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.model.names import check_name
from fairlane.wire.fan_ins import FanIn, FanInDeleted, FanInDetail
from fairlane.wire.fan_ins import FanIns as Listed


class FanIns(ClientResource):
    async def all(self, *, limit: int = 100) -> list[FanIn]:
        """Return the newest fan-ins."""
        return (await self._call(Listed, "GET", "fan-ins", query={"limit": limit})).fan_ins

    async def get(self, id: str, *, limit: int = 100, offset: int = 0) -> FanInDetail:
        """Return a fan-in with a page of its parts. Raises NotFound, also a day after its end."""
        query = {"limit": limit, "offset": offset}
        return await self._call(FanInDetail, "GET", "fan-ins", check_name("id", id), query=query)

    async def delete(self, id: str) -> bool:
        """Delete a fan-in, so that its callback is not pushed. Returns False if it does not exist."""
        return (await self._call(FanInDeleted, "DELETE", "fan-ins", check_name("id", id))).deleted
