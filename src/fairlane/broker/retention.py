"""Retention: one broker at a time deletes what the queues' rules cover, in bounded steps."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter

from fairlane.broker.part import Part
from fairlane.broker.statistics import chosen
from fairlane.errors import Conflict, FairlaneError, LeaseLost
from fairlane.model.retention import RETENTION, Expired
from fairlane.store.contract.store import Store
from fairlane.telemetry import Telemetry
from fairlane.wire.base import made
from fairlane.wire.retention import Deleted, RetentionHistory, WentAt
from fairlane.wire.status import SpanQuery

LEAD_SECONDS = 60
"""A leader that died is followed by another after so long. Steps take milliseconds."""
_WAIT_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_LOG_SECONDS = 60.0
"""At least this long is between two log lines about deleted messages."""

log = logging.getLogger(__name__)


class RetentionService:
    """The service that deletes, of all tenants."""

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._deleted = self._unread = 0
        """Messages deleted since the last log line, and how many of them some group had not finished."""
        self._logged_at = float("-inf")

    def start(self, interval_seconds: float) -> None:
        """Make a pass every so often, together with all other brokers of the store; 0 makes none."""
        if interval_seconds > 0:
            self._task = asyncio.create_task(self._repeat(interval_seconds), name="fairlane retention")

    async def stop(self) -> None:
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._log_deleted(0.0)

    def _log_deleted(self, after_seconds: float) -> None:
        """Log what was deleted since the last line if that is `after_seconds` ago."""
        if self._deleted and time.monotonic() - self._logged_at >= after_seconds:
            counts = {"deleted": self._deleted, "unread": self._unread}
            log.info("retention deleted %(deleted)d messages, %(unread)d of them unread", counts)
            self._deleted, self._unread, self._logged_at = 0, 0, time.monotonic()

    async def _repeat(self, interval_seconds: float) -> None:
        while not self._stopping:
            await asyncio.sleep(interval_seconds * random.uniform(0.9, 1.1))  # noqa: S311
            try:
                if await self._store.retention.due():
                    await self._pass(rest_seconds=int(interval_seconds), early=False)
                self._log_deleted(_LOG_SECONDS)
            except FairlaneError as error:
                log.warning("retention: interrupted, retrying: %(error)s", {"error": error})

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
            unread = sum(one.unread for one in expired)
            self._telemetry.deleted += gone
            self._telemetry.deleted_unread += unread
            self._deleted += gone
            self._unread += unread
            self._log_deleted(_LOG_SECONDS)
        return expired


class Retention(Part):
    """The retention of a tenant: what the rules of its queues deleted."""

    async def run(self) -> list[Deleted]:
        """Make a pass over all queues now; what went of this tenant's, by queue and rule. Conflict if one under way at
        another broker takes too long."""
        expired = await self._broker.retention_service.run()
        names = {queue.id: queue.name for queue in await self._store.queues.list(self._tenant)}
        messages: Counter[tuple[str, str]] = Counter()
        unread: Counter[tuple[str, str]] = Counter()
        for one in expired:
            if one.queue_id in names:
                messages[names[one.queue_id], one.rule] += one.messages
                unread[names[one.queue_id], one.rule] += one.unread
        return [
            Deleted(queue=queue, rule=rule, messages=messages[queue, rule], unread=unread[queue, rule])
            for queue, rule in sorted(messages)
        ]

    async def history(self, where: SpanQuery, *, hours: int = 24) -> RetentionHistory:
        """What rules deleted, by minute, oldest first; in the last hours unless the query says otherwise."""
        span = await self._broker.statistics.span(where, hours=hours)
        names = {queue.id: queue.name for queue in chosen(await self._store.queues.list(self._tenant), where)}
        found = await self._store.retention.history(list(names), since=span.since, until=span.until)
        went = [made(WentAt, one, queue=names[one.queue_id]) for one in found]
        return RetentionHistory(time_range=span.shown(), history=went)
