"""A claim of the command runner: messages of one pop under one lease, which is renewed while they are worked on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from fairlane.broker.broker import Broker
from fairlane.broker.delivery import Batch, Delivery
from fairlane.errors import FairlaneError
from fairlane.model.outcome import AckItem
from fairlane.runtime.backoff import backoff

_BEAT_SECONDS_MAX = 30.0
_FIRST_SECONDS = 0.1


class Claim:
    def __init__(self, broker: Broker, batch: Batch, *, unordered: bool) -> None:
        self.batch = batch
        self.unordered = unordered
        self.group = batch.lanes[0][0].group
        self.stopped = False
        """Nothing more of it is begun."""
        self.left = 0
        """Messages that were not begun: given back at the end."""
        self._broker = broker
        self._lost = False

    @property
    def goes_on(self) -> bool:
        return not self.stopped and not self._lost

    async def keep(self) -> None:
        """Renew the lease until cancelled, or until it is lost."""
        beat = min(self.batch.lease_seconds / 3, _BEAT_SECONDS_MAX)
        while not self._lost:
            await asyncio.sleep(beat)
            try:
                renewed = await self._broker.renew(self.batch)
            except FairlaneError:
                continue  # the lease lasts for two more tries
            self._lost = not renewed.renewed

    async def settle(self, items: Sequence[AckItem]) -> bool:
        """Say what became of messages, again and again while the store does not answer and the lease may be alive;
        whether it was heard."""
        failures = 0
        while not self._lost:
            try:
                outcomes = await self._broker.ack_many(items, group=self.group)
            except FairlaneError as error:
                if not error.retryable:
                    raise
                failures += 1
                await asyncio.sleep(backoff(failures, base=_FIRST_SECONDS, most=5.0))
                continue
            self._lost = any(outcome.code == "lease_lost" for outcome in outcomes)
            return not self._lost
        return False

    async def give_back(self) -> None:
        """At once instead of when the lease ends, and without a charge."""
        if self.left and not self._lost:
            await self._broker.release(self.batch)


class Carrier(Protocol):
    """Carries out what messages of one queue become."""

    def asks(self, free: int, *, unordered: bool) -> tuple[int, int]:
        """How many messages of how many lanes a pop should bring, while so many may be begun."""
        ...

    def parts(self, batch: Batch, *, unordered: bool) -> list[Sequence[Delivery]]:
        """Which of them are carried out beside each other."""
        ...

    async def carry(self, claim: Claim, messages: Sequence[Delivery]) -> None:
        """Carry them out in order, and settle them."""
        ...
