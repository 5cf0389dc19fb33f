"""Capacity of limited queues: how fast they drain, and the error for producers when one is full."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from time import monotonic

from fairlane.broker.push_batch import PartitionBatch, PartitionName, PushFlight
from fairlane.errors import QueueFull
from fairlane.model.outcome import PushOutcome
from fairlane.runtime.rate import RETRY_SECONDS, RateEstimate, retry_after
from fairlane.store.contract.values import Full

QUEUES_MAX = 10_000


def full(result: Full, *, retry_after: float = RETRY_SECONDS) -> QueueFull:
    depth, capacity = result.depth, result.capacity
    text = f"the queue is full: {depth} of {capacity} places are taken"
    return QueueFull(text, depth=depth, capacity=capacity, retry_after=retry_after)


class QueueCapacity:
    """Drain rates of limited queues, estimated from the depths in the store's answers without extra queries."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._drains: dict[int, tuple[RateEstimate, int]] = {}
        """Rate by queue, with its depth at the last observation."""

    def observe(self, queue_id: int, depth: int, came: int = 0) -> RateEstimate:
        """Note that the queue holds `depth` messages now, `came` of them from this call. Returns its drain rate."""
        if queue_id not in self._drains and len(self._drains) >= QUEUES_MAX:
            self._drains.clear()
        rate, before = self._drains.get(queue_id) or (RateEstimate(), depth - came)
        rate.record(max(0, before + came - depth), self._clock())
        self._drains[queue_id] = rate, depth
        return rate

    def refusal(self, queue_id: int, result: Full, wanted: int) -> QueueFull:
        """Return the error for `wanted` messages that did not fit, with the estimated time until they do."""
        rate = self.observe(queue_id, result.depth)
        return full(result, retry_after=retry_after(rate.seconds_for(max(1, result.depth + wanted - result.capacity))))


def fit_to_capacity(flight: PushFlight, refusals: list[tuple[PartitionBatch, Full]], limits: QueueCapacity) -> None:
    """Keep the parts of requests that fit, in order, and refuse the others.

    Each part is kept or refused as a whole, and none overtakes an earlier part of its partition.
    """
    depth = max(result.depth for _, result in refusals)
    capacity = refusals[0][1].capacity
    parts: dict[tuple[int, PartitionName], list[int]] = defaultdict(list)
    by_partition = {batch.partition: batch for batch, _ in refusals}
    for batch, _ in refusals:
        for offset, (request, _) in enumerate(batch.owners):
            parts[request, batch.partition].append(offset)
    room = capacity - depth
    out: dict[PartitionName, list[int]] = defaultdict(list)
    for (_, partition), offsets in sorted(parts.items()):
        if partition not in out and len(offsets) <= room:
            room -= len(offsets)
        else:
            out[partition] += offsets
    error = limits.refusal(refusals[0][0].slice.queue_id, Full(depth, capacity), sum(map(len, out.values())))
    for partition, offsets in out.items():
        batch = by_partition[partition]
        for offset in sorted(offsets, reverse=True):
            transaction_id = batch.slice.transaction_ids[offset]
            outcome = PushOutcome(
                status="refused", transaction_id=transaction_id, depth=depth, capacity=capacity, error=error
            )
            flight.settle(batch, batch.drop(offset), outcome)
