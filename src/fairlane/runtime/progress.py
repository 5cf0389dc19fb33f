"""The progress reporter of a consumer: sends what handlers report, at most once a second."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairlane.errors import FairlaneError
from fairlane.model.limits import PROGRESS_ITEMS_MAX
from fairlane.runtime.claim import Claim, MessagePosition

if TYPE_CHECKING:
    from fairlane.runtime.consumer import Consumer

PAUSE_SECONDS = 1.0
"""Pause after a request. Only the latest report of each message is sent."""


class ProgressReporter:
    """Sends the latest progress of messages. It sleeps until the first report, so other handlers cost nothing."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._latest: dict[tuple[Claim, MessagePosition], tuple[float, str]] = {}
        self._lock = threading.Lock()
        self._reported = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop

    def report(self, claim: Claim, messages: Sequence[Any], fraction: float, text: str) -> None:
        """Send the progress of messages soon. May be called from any thread."""
        with self._lock:
            for message in messages:
                self._latest[claim, (message.partition_id, message.position)] = fraction, text
        if not self._reported.is_set():
            self._loop.call_soon_threadsafe(self._reported.set)

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        while True:
            await self._reported.wait()
            self._reported.clear()
            await self._send()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _send(self) -> None:
        from fairlane.wire.browse import ProgressItem

        with self._lock:
            found, self._latest = self._latest, {}
        items = [
            ProgressItem(
                lease_id=claim.lease, partition_id=str(partition), position=position, fraction=fraction, text=text
            )
            for (claim, (partition, position)), (fraction, text) in found.items()
            if claim in self._consumer.claims and not claim.lost
        ]
        try:
            for start in range(0, len(items), PROGRESS_ITEMS_MAX):
                await self._consumer.verbs.messages.report_progress(items[start : start + PROGRESS_ITEMS_MAX])
        except FairlaneError as error:  # a later report says more
            self._consumer.handling.log.debug("cannot report progress: %(error)s", {"error": error})
