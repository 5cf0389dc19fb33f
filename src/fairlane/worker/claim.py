"""A worker's claim: messages of one pop under one lease, on their way through handlers."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from fairlane.app.context import Context
from fairlane.client.message import Batch, Message
from fairlane.client.wire import Item
from fairlane.model.outcome import AckItem


class Claim:
    """Counts belong to the loop of the polls, tasks and contexts to that of the handlers."""

    def __init__(self, batch: Batch[Any]) -> None:
        self.batch = batch
        self.lease = batch.lease
        self.lost = False
        self.stopped = False
        self.open = len(batch)
        """Messages of which the handlers have said nothing yet."""
        self.unacked = 0
        """Said, and not yet known to the broker."""
        self.left = 0
        """Not begun, because the worker stops: given back at the end."""
        self.tasks: set[asyncio.Task[None]] = set()
        self.contexts: set[Context] = set()

    @property
    def goes_on(self) -> bool:
        return not self.lost and not self.stopped

    def cancel(self) -> None:
        """End the handlers that run. A plain function cannot be ended: it is told by its context."""
        for context in self.contexts:
            context.cancelled = True
        for task in self.tasks:
            task.cancel()


class Verdicts(NamedTuple):
    """Verdicts of a handler on some messages of a claim. `skipped` messages behind them come again by themselves;
    `left` ones were not begun."""

    claim: Claim
    messages: list[Message[Any]]
    items: list[AckItem]
    pushed: list[Item]
    skipped: int = 0
    left: int = 0
    known: asyncio.Future[bool] | None = None
    """On the handlers' loop: told whether a transaction was committed."""
