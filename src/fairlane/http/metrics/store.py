"""Metrics of the store, which all brokers on it share: queues, groups and operations."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from fairlane.broker.broker import Broker
from fairlane.broker.count_cache import cache_seconds
from fairlane.broker.statistics import counts
from fairlane.errors import FairlaneError
from fairlane.http.metrics.families import OTHER, SERIES_MAX, Families, Labels, capped
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.queue import Queue
from fairlane.model.stats import LANE_STATES

STUCK_SECONDS: Final = 60
OVERDUE_SECONDS: Final = 60
COUNT_SECONDS: Final = 5.0
"""Time after which a scrape shows the previous counts, while counting continues."""


class StoreMetrics:
    """Metrics of the store, counted once for all concurrent scrapes, and as rarely as `Statistics` if counting is slow.

    The first `series_max` queues and groups are shown by name, in the order of their creation, so that new ones never
    end a series. The rest is summed up.
    """

    def __init__(self, broker: Broker, series_max: int = SERIES_MAX) -> None:
        self._broker = broker
        self._series_max = series_max
        self._counting: asyncio.Task[None] | None = None
        self._last, self.counted = b"", Families()
        self.names: dict[int, Labels] = {}
        """Labels of all queues by id, as of the last count."""
        self._serves_until = 0.0
        self._counted_at: float | None = None

    async def text(self) -> bytes | None:
        """Return the text. None while the store does not answer."""
        if not await self.count():
            return None
        out = Families()
        if self._counted_at is not None:
            age = time.monotonic() - self._counted_at
            out.gauge("store_metrics_age_seconds", "Age of the metrics that are read from the store.", age)
        return out.text() + self._last

    async def count(self) -> bool:
        """Update counts that are outdated. Returns True if the store answers."""
        if not await self._broker.status.healthy():
            return False
        if time.monotonic() >= self._serves_until:
            if self._counting is None or self._counting.done():
                self._counting = asyncio.create_task(self._count(), name="fairlane metrics")
                # The callers may have gone before it failed.
                self._counting.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.wait({self._counting}, timeout=COUNT_SECONDS)
            try:
                if self._counting.done():
                    self._counting.result()
            except FairlaneError:
                return False
        return True

    async def known_names(self) -> dict[int, Labels]:
        """Return the labels of all queues, as last known while the store does not answer."""
        with contextlib.suppress(FairlaneError):
            self.names = {queue.id: _label(queue) for queue in await self._broker.process.statistics.listed()}
        return self.names

    async def _count(self) -> None:
        out = Families()
        began = time.monotonic()
        await self._operations(out)
        await self._queues(out)
        if 0 not in self._broker.status.missing_cells():  # what follows is in the home
            await self._staged(out)
            await self._workers(out)
            await self._spec(out)
        self._last, self.counted = await out.written(), out
        now, statistics = time.monotonic(), self._broker.queues.statistics
        self._counted_at = began - max(statistics.age_seconds(), statistics.groups_age_seconds())
        self._serves_until = now + cache_seconds(now - began)

    async def _operations(self, out: Families) -> None:
        depth, failed, stuck = await self._broker.status.operations(stuck_seconds=STUCK_SECONDS)
        standing = [({"state": "waiting"}, depth), ({"state": "failed"}, failed)]
        help = "Operations of all brokers that wait to be applied, or that failed and need a decision."
        out.gauge("operations", help, standing)
        out.gauge("operation_backlogs_stuck", f"Backlogs of operations without progress for {STUCK_SECONDS} s.", stuck)

    async def _queues(self, out: Families) -> None:
        statistics = self._broker.process.statistics
        now = await statistics.now()
        newest_first = await statistics.queues()
        groups = sorted(await statistics.groups(), key=lambda entry: entry[1].group_id)
        oldest = await statistics.oldest(newest_first, [found for _, found in groups])
        counted = sorted(newest_first, key=lambda entry: entry[0].id)
        self.names = {queue.id: _label(queue) for queue, _ in counted}
        out.gauge("queues", "Number of queues, including those without a series of their own.", len(counted))
        shown = {queue.id for queue, _ in counted[: self._series_max]}
        queues = [(_label(queue, shown), queue, found, counts(found)) for queue, found in counted]
        standing = [
            ({**name, "state": state}, getattr(by_state, state))
            for name, _, _, by_state in queues
            for state in ("pending", "processing", "completed")
        ]
        out.gauge(
            "queue_messages", "Retained messages of a queue: pending, processing (leased) or completed.", standing
        )
        limits = [(name, queue.options.max_size) for name, queue, _, _ in queues if queue.options.max_size]
        out.gauge("queue_max_messages", "Limit of messages in a queue with `max_size`.", limits)
        dead = [(name, found.dead) for name, _, found, _ in queues]
        out.gauge("queue_dead_letters", "Dead letters of a queue that have not been replayed.", dead)
        partitions = [(name, found.partitions) for name, _, found, _ in queues]
        out.gauge("queue_partitions", "Partitions of a queue.", partitions)
        age = "Age of the oldest message that at least one group has not finished, or 0."
        ages = [(name, max(0.0, (now - oldest.get(queue.id, now)) / 1e6)) for name, queue, _, _ in queues]
        out.gauge("queue_oldest_age_seconds", age, ages, max)
        lags = [
            (
                {**_label(queue, shown), "group": one.group.name}
                if number < self._series_max and queue.id in shown
                else {"queue": OTHER, "group": OTHER},
                one,
            )
            for number, (queue, one) in enumerate(groups)
        ]
        out.gauge("group_lag_messages", "Messages that a group has not finished.", [(at, one.lag) for at, one in lags])
        delays = [(at, 0.0 if one.oldest_at is None else max(0.0, (now - one.oldest_at) / 1e6)) for at, one in lags]
        out.gauge(
            "group_lag_seconds",
            "Age of the oldest message that a group has not finished, or 0.",
            delays,
            max,
        )
        lanes = [({**at, "state": state}, getattr(one, state)) for at, one in lags for state in LANE_STATES]
        out.gauge("group_lanes", "Lanes of a group that are blocked, parked, paused or retrying a message.", lanes)
        out.gauge("group_leases", "Partitions with a live lease of a group.", [(at, one.leases) for at, one in lags])
        out.gauge(
            "group_leased_messages", "Messages in the live leases of a group.", [(at, one.leased) for at, one in lags]
        )

    async def _staged(self, out: Families) -> None:
        """Add metrics of messages that other programs enqueued and that are not moved yet."""
        now, staged = await self._broker.process.statistics.now(), await self._broker.process.staged.by_queue()
        label = capped(dict.fromkeys(one.queue for one in staged), self._series_max)
        named: list[tuple[Labels, Any]] = [
            ({"queue": label[one.queue]} | ({} if one.tenant == DEFAULT_TENANT else {"tenant": one.tenant}), one)
            for one in staged
        ]
        help = "Messages enqueued in transactions of other programs that are not moved to their queue yet."
        out.gauge("staged_messages", help, [(at, one.messages) for at, one in named])
        ages = [(at, max(0.0, (now - one.oldest_at) / 1e6)) for at, one in named]
        out.gauge("staged_oldest_age_seconds", "Age of the oldest staged message of a queue.", ages, max)

    async def _workers(self, out: Families) -> None:
        """Add metrics from the latest report of each live worker."""
        workers = await self._broker.workers.all()
        label = capped(dict.fromkeys(one.app for one in workers), self._series_max)
        apps = Counter(label[one.app] for one in workers)
        out.gauge("workers", "Live workers.", [({"app": name}, count) for name, count in apps.items()])
        lost = [({"app": one.name}, len(one.workers)) for one in await self._broker.workers.lost_apps()]
        help = "Workers that stopped reporting without leaving, of apps without a live worker. Listed for a day."
        out.gauge("workers_lost", help, lost[: self._series_max])
        parts: list[tuple[Labels, Any]] = [
            ({"app": one.app, "host": one.hostname, "pid": str(one.pid), "queue": own.queue, "group": own.group}, own)
            for one in workers
            for own in one.queues
        ][: self._series_max]  # the rest is not summed up: that counter would fall when one of them ends
        out.gauge(
            "worker_concurrency",
            "Maximum number of messages that a worker handles concurrently.",
            [(at, own.concurrency) for at, own in parts],
        )
        out.gauge(
            "worker_messages_in_hand",
            "Messages that a worker currently holds.",
            [(at, own.in_hand) for at, own in parts],
        )
        out.counter("worker_messages_total", "Messages handled by a worker.", [(at, own.handled) for at, own in parts])
        failed = [(at, own.failed) for at, own in parts]
        out.counter("worker_messages_failed_total", "Messages that failed in a worker.", failed)

    async def _spec(self, out: Families) -> None:
        late_before = await self._broker.queues.statistics.now() - OVERDUE_SECONDS * 1_000_000
        active, paused, overdue = await self._broker.schedules.standing(late_before)
        by_state = [({"state": "active"}, active), ({"state": "paused"}, paused)]
        out.gauge("schedules", "Schedules, active or paused.", by_state)
        out.gauge("schedules_overdue", f"Schedules that are overdue by more than {OVERDUE_SECONDS} s.", overdue)
        sources = await self._broker.sources.all()
        label = capped((one.name for one in sources), self._series_max)
        records = [({"source": label[one.name]}, one.records) for one in sources]
        out.gauge("source_records", "Known records of a source.", records)
        read = [({"source": label[one.name]}, (one.committed_at or 0) / 1e6) for one in sources]
        help = "Time of the last commit of a source, in seconds since 1970, or 0."
        out.gauge("source_last_commit_timestamp_seconds", help, read, min)


def _label(queue: Queue, shown: Collection[int] | None = None) -> Labels:
    """Return the labels of a queue, with its tenant if that is not the default one. Hidden queues share one label."""
    if shown is not None and queue.id not in shown:
        return {"queue": OTHER}
    return {"queue": queue.name} if queue.tenant == DEFAULT_TENANT else {"queue": queue.name, "tenant": queue.tenant}
