"""Caches of the store: a slow read that started before a change does not undo the change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlane import Broker
from fairlane.broker.flags import PUSHES_PAUSED, Flags
from fairlane.broker.peer_stats import PeerStats
from fairlane.broker.tenants import Tenants
from fairlane.model.tenant import Quotas
from fairlane.telemetry import Telemetry


class SlowFirst:
    """A read whose first answer is held back until it is released. Later reads are answered at once."""

    def __init__(self, read: Callable[..., Awaitable[Any]]) -> None:
        self._read = read
        self._first = True
        self.was_read, self.release = asyncio.Event(), asyncio.Event()

    async def __call__(self, *arguments: Any) -> Any:
        is_first, self._first = self._first, False
        answer = await self._read(*arguments)
        if is_first:
            self.was_read.set()
            await self.release.wait()
        return answer


async def test_a_slow_read_does_not_take_back_the_quotas_of_a_new_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Broker.open("sqlite:///:memory:") as broker:
        store = broker._engine.store
        tenants, slow = Tenants(store, PeerStats(Telemetry())), SlowFirst(store.tenants.all)
        monkeypatch.setattr(store.tenants, "all", slow)
        old = asyncio.create_task(tenants.reload())
        await slow.was_read.wait()
        await tenants.create("acme", Quotas(queues=2))
        slow.release.set()
        await old
        assert tenants.limits("acme", "queues")


async def test_a_slow_read_does_not_take_back_a_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Broker.open("sqlite:///:memory:") as broker:
        store = broker._engine.store
        flags, slow = Flags(store), SlowFirst(store.flags.enabled)
        monkeypatch.setattr(store.flags, "enabled", slow)
        old = asyncio.create_task(flags.refresh())
        await slow.was_read.wait()
        await flags.set(PUSHES_PAUSED, True)
        slow.release.set()
        await old
        assert flags.on == {PUSHES_PAUSED}
