"""Retention: one broker at a time deletes what the queues' rules cover, in bounded steps."""

from __future__ import annotations

import asyncio
import logging
import random
import time

from fairlane.errors import Conflict, FairlaneError, LeaseLost
from fairlane.model.retention import RETENTION, Expired
from fairlane.store.contract.store import Store

LEAD_SECONDS = 60
"""A leader that died is followed by another after so long. Steps take milliseconds."""
_WAIT_SECONDS = 10.0
_LOOK_SECONDS = 0.05

log = logging.getLogger(__name__)


class RetentionService:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self, interval_seconds: float) -> None:
        """Make a pass every so often, together with all other brokers of the store; 0 makes none."""
        if interval_seconds > 0:
            self._task = asyncio.create_task(self._repeat(interval_seconds), name="fairlane retention")

    async def stop(self) -> None:
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _repeat(self, interval_seconds: float) -> None:
        while not self._stopping:
            await asyncio.sleep(interval_seconds * random.uniform(0.9, 1.1))  # noqa: S311
            try:
                if await self._store.retention.due():
                    await self._pass(rest_seconds=int(interval_seconds), early=False)
            except FairlaneError as error:
                log.warning("retention: interrupted, retrying: %s", error)

    async def run(self) -> list[Expired]:
        """Make a pass now, after the one that may be under way; what went. Conflict if that takes too long."""
        give_up_at = time.monotonic() + _WAIT_SECONDS
        while (expired := await self._pass(rest_seconds=0, early=True)) is None:
            if self._stopping or time.monotonic() > give_up_at:
                raise Conflict("retention is under way at another broker; ask again when it is done")
            await asyncio.sleep(_LOOK_SECONDS)
        return expired

    async def _pass(self, *, rest_seconds: int, early: bool) -> list[Expired] | None:
        """Lead until nothing is due; None if another leads."""
        leadership = self._store.leadership
        token = await leadership.lead(RETENTION, seconds=LEAD_SECONDS, early=early)
        if token is None:
            return None
        expired: list[Expired] = []
        try:
            more = True
            while more and not self._stopping:
                step = await self._store.retention.step(token)
                expired += step.expired
                more = step.more and await leadership.keep(RETENTION, token, seconds=LEAD_SECONDS)
        except LeaseLost:
            log.warning("retention: another broker leads now")
        finally:
            await leadership.rest(RETENTION, token, seconds=rest_seconds)
        gone = sum(one.messages for one in expired if one.rule in ("retention", "completed"))
        if gone:
            log.info("retention deleted %d messages, %d of them unread", gone, sum(one.unread for one in expired))
        return expired
