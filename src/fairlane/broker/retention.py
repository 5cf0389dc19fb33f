"""Retention: one broker at a time applies the retention rules, in bounded steps."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter

from fairlane.broker.resource import Resource
from fairlane.broker.statistics import chosen
from fairlane.errors import Conflict, FairlaneError, LeaseLost
from fairlane.model.moment import Moment
from fairlane.model.retention import RETENTION, Expired
from fairlane.store.contract.store import Store
from fairlane.telemetry import Telemetry
from fairlane.wire.retention import Deleted, RetentionHistory, WentAt
from fairlane.wire.status import SpanQuery

LEAD_SECONDS = 60
"""Time after which a dead leader is replaced. Steps take milliseconds."""
_WAIT_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_LOG_SECONDS = 60.0
"""Smallest time between two log lines about deleted messages."""

log = logging.getLogger(__name__)


class RetentionService:
    """The service that applies retention rules for all tenants."""

    def __init__(self, store: Store, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._deleted = self._unread = 0
        """Messages deleted since the last log line, and how many of them some group had not finished."""
        self._logged_at = float("-inf")

    def start(self, interval_seconds: float) -> None:
        """Run a pass every `interval_seconds`, in turn with all other brokers of the store. 0 disables it."""
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
        """Run a pass now, after one that may be running, and return the deletions. Raises Conflict on timeout."""
        give_up_at = time.monotonic() + _WAIT_SECONDS
        while (expired := await self._pass(rest_seconds=0, early=True)) is None:
            if self._stopping or time.monotonic() > give_up_at:
                raise Conflict("another broker is running retention; try again when it is done")
            await asyncio.sleep(_LOOK_SECONDS)
        return expired

    async def _pass(self, *, rest_seconds: int, early: bool) -> list[Expired] | None:
        """Lead until nothing is due. Returns None if another broker leads."""
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
            await leadership.release(RETENTION, token, seconds=rest_seconds)
        gone = sum(one.messages for one in expired if one.rule in ("retention", "completed"))
        if gone:
            unread = sum(one.unread for one in expired)
            self._telemetry.deleted += gone
            self._telemetry.deleted_unread += unread
            self._deleted += gone
            self._unread += unread
            self._log_deleted(_LOG_SECONDS)
        return expired


class Retention(Resource):
    """The retention of a tenant: deletions by the rules of its queues."""

    async def run(self) -> list[Deleted]:
        """Run a pass over all queues now. Returns the deletions of this tenant, by queue and rule.

        Raises Conflict if a pass of another broker takes too long.
        """
        expired = await self._engine.retention_service.run()
        names = {queue.id: queue.name for queue in await self._store.queues.all(self._tenant)}
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
        """Return the deletions by minute, oldest first, by default of the last hours."""
        span = await self._scope.statistics.span(where, hours=hours)
        names = {queue.id: queue.name for queue in chosen(await self._store.queues.all(self._tenant), where)}
        found = await self._store.retention.history(list(names), since=span.since, until=span.until)
        went = [
            WentAt(
                queue=names[one.queue_id],
                rule=one.rule,
                messages=one.messages,
                unread=one.unread,
                at=Moment(one.at),
            )
            for one in found
        ]
        return RetentionHistory(time_range=span.shown(), history=went)
