"""The cancel watch of a consumer: asks the broker which of its messages were cancelled."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from fairlane.errors import FairlaneError
from fairlane.model.ids import PartitionId
from fairlane.runtime.backoff import backoff
from fairlane.runtime.claim import Claim, MessagePosition

if TYPE_CHECKING:
    from fairlane.runtime.consumer import Consumer

YOUNG_SECONDS = 0.2
"""Leases younger than this are not watched, so that short handlers cause no requests."""
WAIT_SECONDS = 0.7
"""Longest wait of one request. Leases that are taken meanwhile are in the next one."""
LEASES_MAX = 1000


class CancelWatch:
    """Watches the leases of a consumer for cancelled messages, and ends their handlers.

    A handler learns of a cancellation within a second, and otherwise at the next renewal of its lease.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._claims = consumer.claims
        self._log = consumer.handling.log
        self._claimed = asyncio.Event()

    def wake(self) -> None:
        """Note that there is a new claim."""
        self._claimed.set()

    async def run(self) -> None:
        failures = 0
        while True:
            if not self._claims:
                self._claimed.clear()
                await self._claimed.wait()
            await asyncio.sleep(YOUNG_SECONDS)
            old = monotonic() - YOUNG_SECONDS
            watched = [one for one in self._claims if one.open and not one.lost and one.began_at <= old]
            if not watched:
                continue
            try:
                await self._ask({claim.lease: claim for claim in watched[:LEASES_MAX]})
                failures = 0
            except FairlaneError as error:
                if not error.retryable:
                    self._log.debug("cannot watch for cancelled messages: %(error)s", {"error": error})
                    return  # renewals report them as well
                failures += 1
                await asyncio.sleep(backoff(failures, base=0.5, most=10.0))

    async def _ask(self, claims: dict[str, Claim]) -> None:
        """Wait for cancelled messages of some leases, and report the new ones."""
        known = any(claim.cancelled_messages for claim in claims.values())
        # The broker answers at once if it knows cancelled messages of these leases.
        if known:
            await asyncio.sleep(WAIT_SECONDS / 2)
        found = await self._consumer.verbs.cancellations.watch(list(claims), wait=0.0 if known else WAIT_SECONDS)
        messages: dict[str, list[MessagePosition]] = defaultdict(list)
        for one in found:
            messages[one.lease_id].append((PartitionId.parse(one.partition_id), one.position))
        for lease, positions in messages.items():
            claim = claims[lease]
            if not claim.cancelled_messages.issuperset(positions):
                self.apply(claim, positions)

    def apply(self, claim: Claim, messages: Sequence[MessagePosition]) -> None:
        """End the handlers of cancelled messages. Other messages of the claim go on."""
        fields = {**self._consumer.names, "messages": len(messages)}
        self._log.info("%(messages)d messages of queue %(queue)r were cancelled", fields)
        self._consumer.on_handler_loop(claim.cancel_messages, messages)
