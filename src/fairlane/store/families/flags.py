"""Flags: what operators turned on for all brokers."""

from __future__ import annotations

from fairlane.store.families.port import Family


class Flags(Family):
    async def on(self) -> set[str]:
        """Names of those that are on."""
        return {name for (name,) in await self._port.read("flags.on")}

    async def turn(self, name: str, on: bool) -> None:
        await self._port.write("flags.turn", name=name, on=on)
