"""Effects: what handlers did once, stored by the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fairlane.client.client import Client
from fairlane.errors import FairlaneError
from fairlane.model.ids import PartitionId
from fairlane.runtime.backoff import backoff

_ATTEMPTS = 5
_FIRST_SECONDS = 0.2


class Effects:
    """Asked from the loop of the handlers, on the loop of the client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()

    async def get(self, key: str, partition: PartitionId) -> bytes | None:
        return await self._there(lambda: self._client.effect(key, partition))

    async def keep(self, key: str, partition: PartitionId, value: bytes) -> bytes:
        saved = await self._there(lambda: self._client.keep_effect(key, partition, value))
        assert saved is not None
        return saved

    async def _there(self, ask: Callable[[], Awaitable[bytes | None]]) -> bytes | None:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_patiently(ask), self._loop))


async def _patiently(ask: Callable[[], Awaitable[bytes | None]]) -> bytes | None:
    """An effect that is not saved is had again, so that a moment's outage is worth waiting for."""
    failures = 0
    while True:
        try:
            return await ask()
        except FairlaneError as error:
            failures += 1
            if not error.retryable or failures >= _ATTEMPTS:
                raise
            await asyncio.sleep(backoff(failures, base=_FIRST_SECONDS, most=5.0))
