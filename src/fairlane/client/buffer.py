"""A client-side buffer of messages, for producers that can wait for their outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Unpack

from fairlane.client.pushes import item_of
from fairlane.model.limits import BATCH_ITEMS_MAX, MESSAGE_BYTES_MAX
from fairlane.model.message import PushItem, PushOptions
from fairlane.model.names import check_count
from fairlane.model.outcome import PushOutcome

PushMany = Callable[[Sequence[PushItem]], Awaitable[list[PushOutcome]]]


class Buffer:
    """Collects messages and pushes them together. Nothing in it is durable until `flush` has returned.

    `async with client.buffer()` flushes at the end of the block unless the block raises. Messages that could not be
    stored stay in the buffer with their transactionId, so another flush stores them once.
    """

    def __init__(self, push_many: PushMany, *, items_max: int, bytes_max: int) -> None:
        self.items_max = check_count("items_max", items_max, least=1, most=BATCH_ITEMS_MAX)
        self.bytes_max = check_count("bytes_max", bytes_max, least=1, most=2 * MESSAGE_BYTES_MAX)
        self._push_many = push_many
        self._items: list[PushItem] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    async def push(self, queue: str, data: Any, **options: Unpack[PushOptions]) -> None:
        """Add one message. Returns at once, unless the buffer is full and has to be flushed first."""
        item = item_of(queue, data, options)
        if self._items and (len(self._items) >= self.items_max or self._bytes + len(item.payload) > self.bytes_max):
            await self.flush()
        self._items.append(item)
        self._bytes += len(item.payload)

    async def flush(self) -> list[PushOutcome]:
        """Push all buffered messages and return their outcomes in order.

        Raises the error of the first message that could not be stored.
        """
        items, size = self._items, self._bytes
        if not items:
            return []
        self._items, self._bytes = [], 0
        try:
            outcomes = await self._push_many(items)
        except BaseException:
            self._put_back(items, size)
            raise
        refused = [(item, outcome.error) for item, outcome in zip(items, outcomes, strict=True) if outcome.error]
        if refused:
            refused_items = [item for item, _ in refused]
            self._put_back(refused_items, sum(len(item.payload) for item in refused_items))
            raise refused[0][1]
        return outcomes

    def _put_back(self, items: list[PushItem], size: int) -> None:
        self._items = items + self._items
        self._bytes += size

    async def __aenter__(self) -> Buffer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is None:
            await self.flush()
