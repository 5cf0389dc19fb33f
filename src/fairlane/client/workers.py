"""Workers: those that are alive."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import WorkerView
from fairlane.client.wire import decode, encode


class _Listed(msgspec.Struct):
    workers: list[WorkerView]


class Workers(Family):
    async def workers(self) -> list[WorkerView]:
        """Those that told of themselves lately."""
        return decode(await self._transport.ask("GET", path_of("workers")), _Listed).workers

    async def beat(self, id: str, facts: dict[str, Any]) -> None:
        """Tell the broker that a worker is alive, and what it does."""
        await self._transport.ask("POST", path_of("workers", id), body=encode(facts))

    async def leave(self, id: str) -> None:
        """Tell it that the worker ends."""
        await self._transport.ask("DELETE", path_of("workers", id))
