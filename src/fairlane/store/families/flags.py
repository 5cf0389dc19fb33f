"""Flags that operators set for all brokers."""

from __future__ import annotations

from fairlane.store.families.query import Family


class Flags(Family):
    async def enabled(self) -> set[str]:
        """Return the names of the flags that are on."""
        return {name for (name,) in await self._runner.read("flags.enabled")}

    async def set(self, name: str, on: bool) -> None:
        await self._runner.write("flags.set", name=name, on=on)
