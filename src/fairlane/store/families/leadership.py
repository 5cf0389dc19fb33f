"""Leadership of services that only one broker runs at a time.

Each new leader gets a token that is greater than every earlier one.
"""

from __future__ import annotations

from fairlane.store.families.query import Family


class Leadership(Family):
    async def lead(self, name: str, *, seconds: int, early: bool = False) -> int | None:
        """Become the leader of `name` for `seconds` and return the token.

        Returns None while another broker leads, or during the rest after a round unless `early` is true.
        """
        found = await self._runner.write("leadership.lead", name=name, seconds=seconds, early=early)
        return int(found[0][0]) if found else None

    async def take(self, name: str, token: int, *, seconds: int) -> bool:
        """Become the leader of `name` by a token that another store gave. Returns False if a later token led here."""
        return bool(await self._runner.write("leadership.take", name=name, token=token, seconds=seconds))

    async def keep(self, name: str, token: int, *, seconds: int) -> bool:
        """Lead for `seconds` from now. Returns False if the token is no longer valid."""
        return bool(await self._runner.write("leadership.keep", name=name, token=token, seconds=seconds))

    async def release(self, name: str, token: int, *, seconds: int) -> None:
        """Give up the lead. Nobody takes it for `seconds`, unless early. A no-op if another leads."""
        await self._runner.write("leadership.release", name=name, token=token, seconds=seconds)
