"""The heartbeat of a worker: it reports that it is alive, and what it does."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
from collections.abc import Sequence

from fairlane.client.client import Client
from fairlane.errors import FairlaneError
from fairlane.model.ids import uuid7
from fairlane.wire.workers import WorkerQueue, WorkerReport
from fairlane.worker.feed import Feed

BEAT_SECONDS = 10.0
_CURRENT_MAX = 20

log = logging.getLogger("fairlane.worker")


class Heartbeat:
    def __init__(self, app: str, client: Client, feeds: Sequence[Feed]) -> None:
        self.id = uuid7()
        self._app = app
        self._client = client
        self._feeds = feeds

    async def run(self, stopping: asyncio.Event) -> None:
        """Until the worker stops. A beat that does not get through is one beat less."""
        while not stopping.is_set():
            try:
                await self._client.report(self.id, self._report())
            except FairlaneError as error:
                log.debug("cannot send the heartbeat: %s", error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), BEAT_SECONDS)
        with contextlib.suppress(FairlaneError):
            await self._client.leave(self.id)

    def _report(self) -> WorkerReport:
        current = (message.transaction_id for feed in self._feeds for claim in feed.claims for message in claim.batch)
        queues = [
            WorkerQueue(
                queue=feed.queue,
                group=feed.subscription.group,
                concurrency=feed.concurrency,
                in_hand=feed.in_hand,
                handled=max(0, feed.verdict_sender.handled),
                failed=feed.verdict_sender.failed,
                mean_ms=round(feed.mean_seconds * 1000, 3),
            )
            for feed in self._feeds
        ]
        return WorkerReport(
            app=self._app,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            queues=queues,
            current=list(itertools.islice(current, _CURRENT_MAX)),
        )
