"""Leadership: which broker does the work that one at a time does for all.

Who leads has a token, greater than every token before it."""

from __future__ import annotations

from fairlane.store.families.port import Family


class Leadership(Family):
    async def lead(self, name: str, *, seconds: int, early: bool = False) -> int | None:
        """Take the work of this name for so long; the token. None while another leads it, or it rests and this is not
        `early`."""
        found = await self._port.write("leadership.lead", name=name, seconds=seconds, early=early)
        return int(found[0][0]) if found else None

    async def keep(self, name: str, token: int, *, seconds: int) -> bool:
        """Lead for so long from now; False if the token is not the leader's (any more)."""
        return bool(await self._port.write("leadership.keep", name=name, token=token, seconds=seconds))

    async def rest(self, name: str, token: int, *, seconds: int) -> None:
        """Give the work back; nobody takes it for so long, unless early. Nothing happens if another leads."""
        await self._port.write("leadership.rest", name=name, token=token, seconds=seconds)
