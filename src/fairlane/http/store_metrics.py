"""Metrics that are read from the store when somebody scrapes: what queues hold, how far groups are, what waits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fairlane.broker.statistics import counts, serves_until
from fairlane.errors import FairlaneError
from fairlane.http.families import Families
from fairlane.model.queue import Queue
from fairlane.model.stats import GroupStats

if TYPE_CHECKING:
    from fairlane.http.app import App

STUCK_SECONDS: Final = 60
LINES_MAX: Final = 1000  # queues, groups or workers; a family with more lines is of no use to anybody
COUNT_SECONDS: Final = 5.0
"""Counting that takes longer goes on, and what was counted before is shown meanwhile."""


class StoreMetrics:
    """Metrics of the store: counted once for all that ask at the same time, and as seldom as `Statistics` where it is
    dear."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._counting: asyncio.Task[None] | None = None
        self._last = b""
        self._counted_at = self._serves_until = 0.0

    async def text(self) -> bytes | None:
        """None while the store does not answer."""
        if not await self._app.broker.status.healthy():
            return None
        if time.monotonic() >= self._serves_until:
            if self._counting is None or self._counting.done():
                self._counting = asyncio.create_task(self._count(), name="fairlane metrics")
                # Whoever waited for it may have gone before it failed.
                self._counting.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.wait({self._counting}, timeout=COUNT_SECONDS)
            try:
                if self._counting.done():
                    self._counting.result()
            except FairlaneError:
                return None
        out = Families()
        age = time.monotonic() - self._counted_at
        out.one("store_metrics_age_seconds", "gauge", "Since what follows was counted in the store.", age)
        return out.text() + self._last

    async def _count(self) -> None:
        out = Families()
        began = time.monotonic()
        await _operations(out, self._app)
        await _queues(out, self._app)
        await _workers(out, self._app)
        self._last, self._counted_at, self._serves_until = await out.written(), began, serves_until(began)


async def _operations(out: Families, app: App) -> None:
    """Operations that were accepted and are applied later."""
    operations = app.broker.store.operations
    depth = await operations.depth()
    stuck = 0
    if depth:
        before = await app.broker.store.now() - STUCK_SECONDS * 1_000_000
        backlogs = await operations.backlogs(app.tenant, limit=10_000)
        stuck = sum(backlog.moved_at < before for backlog in backlogs)
    out.one("operation_queue_depth", "gauge", "Operations accepted and not applied yet, of all brokers.", depth)
    failed = await operations.failed(app.tenant)
    out.one("operations_failed", "gauge", "Operations that failed and wait for somebody to decide.", failed)
    out.one("operation_queue_stuck_lanes", "gauge", f"Lanes of them that have not moved for {STUCK_SECONDS} s.", stuck)


async def _queues(out: Families, app: App) -> None:
    now = await app.broker.store.now()
    counted = (await app.broker.statistics.queues())[:LINES_MAX]
    states = [(queue.name, counts(stats)) for queue, stats in counted]
    out.family(
        "queue_messages",
        "gauge",
        "Retained messages by where they stand.",
        [
            ({"queue": name, "state": state}, getattr(counts, field))
            for name, counts in states
            for state, field in (("pending", "pending"), ("processing", "processing"), ("completed", "completed"))
        ],
    )
    out.family(
        "dead_letters", "gauge", "Dead letters not replayed.", [({"queue": name}, c.dead_letter) for name, c in states]
    )
    out.family(
        "queue_partitions", "gauge", "Partitions.", [({"queue": q.name}, stats.partitions) for q, stats in counted]
    )
    groups = await app.broker.statistics.groups()
    oldest = await app.broker.statistics.oldest(counted, [stats for _, stats in groups])
    out.family(
        "queue_oldest_seconds",
        "gauge",
        "Age of the oldest message that some group has not finished; 0 if there is none.",
        [({"queue": q.name}, max(0.0, (now - oldest.get(q.id, now)) / 1e6)) for q, _ in counted],
    )
    _groups(out, groups[:LINES_MAX], now)


def _groups(out: Families, counted: Sequence[tuple[Queue, GroupStats]], now: int) -> None:
    groups = [({"queue": queue.name, "group": stats.group.name}, stats) for queue, stats in counted]
    out.family("group_lag", "gauge", "Messages that a group has not finished.", [(at, g.lag) for at, g in groups])
    out.family(
        "group_lag_seconds",
        "gauge",
        "Age of the oldest of them.",
        [(at, max(0.0, (now - g.oldest_at) / 1e6) if g.oldest_at is not None else 0.0) for at, g in groups],
    )
    out.family("group_leases", "gauge", "Partitions under a live lease.", [(at, g.leases) for at, g in groups])
    out.family("group_leased_messages", "gauge", "Messages in them.", [(at, g.leased) for at, g in groups])


async def _workers(out: Families, app: App) -> None:
    """As the workers that are alive told it last."""
    workers = (await app.broker.workers.list())[:LINES_MAX]
    parts = [
        ({"app": one.app, "host": one.hostname, "pid": str(one.pid), "queue": part.queue, "group": part.group}, part)
        for one in workers
        for part in one.queues
    ]
    apps = Counter(one.app for one in workers)
    out.family("workers", "gauge", "Workers that are alive.", [({"app": name}, count) for name, count in apps.items()])
    out.family(
        "worker_concurrency", "gauge", "Messages at once.", [(labels, part.concurrency) for labels, part in parts]
    )
    out.family("worker_in_hand", "gauge", "Messages held now.", [(labels, part.in_hand) for labels, part in parts])
    out.family(
        "worker_handled_total", "counter", "Messages handled.", [(labels, part.handled) for labels, part in parts]
    )
    out.family(
        "worker_failed_total",
        "counter",
        "Of them, those that failed.",
        [(labels, part.failed) for labels, part in parts],
    )
