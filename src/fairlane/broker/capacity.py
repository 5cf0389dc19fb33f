"""Limited queues: how fast they drain, and what a producer is told when one is full."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from time import monotonic

from fairlane.broker.push_batch import Draft, Flush, PartitionName
from fairlane.errors import QueueFull
from fairlane.model.outcome import PushOutcome
from fairlane.runtime.rate import RETRY_SECONDS, Rate, retry_after
from fairlane.store.contract.values import Full

QUEUES_MAX = 10_000


def full(result: Full, *, retry_after: float = RETRY_SECONDS) -> QueueFull:
    depth, capacity = result.depth, result.capacity
    text = f"the queue is full: {depth} of {capacity} places are taken"
    return QueueFull(text, depth=depth, capacity=capacity, retry_after=retry_after)


class Capacity:
    """The drain rates of limited queues, out of the depths that the store tells with its answers; it asks nothing."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._drains: dict[int, tuple[Rate, int]] = {}
        """By queue, with its depth at the last look."""

    def saw(self, queue_id: int, depth: int, came: int = 0) -> Rate:
        """The queue holds `depth` by now, `came` of them through this call."""
        if queue_id not in self._drains and len(self._drains) >= QUEUES_MAX:
            self._drains.clear()
        rate, before = self._drains.get(queue_id) or (Rate(), depth - came)
        rate.did(max(0, before + came - depth), self._clock())
        self._drains[queue_id] = rate, depth
        return rate

    def refusal(self, queue_id: int, result: Full, wanted: int) -> QueueFull:
        """The error for `wanted` messages that did not fit, with the time until they probably do."""
        rate = self.saw(queue_id, result.depth)
        return full(result, retry_after=retry_after(rate.seconds_for(max(1, result.depth + wanted - result.capacity))))


def make_room(flush: Flush, refusals: list[tuple[Draft, Full]], limits: Capacity) -> None:
    """Leave in the requests' parts that fit, in the order they came. Each part goes whole or not at all, and none
    passes an earlier one of its partition."""
    depth = max(result.depth for _, result in refusals)
    capacity = refusals[0][1].capacity
    parts: dict[tuple[int, PartitionName], list[int]] = defaultdict(list)
    by_partition = {draft.partition: draft for draft, _ in refusals}
    for draft, _ in refusals:
        for offset, (request, _) in enumerate(draft.owners):
            parts[request, draft.partition].append(offset)
    room = capacity - depth
    out: dict[PartitionName, list[int]] = defaultdict(list)
    for (_, partition), offsets in sorted(parts.items()):
        if partition not in out and len(offsets) <= room:
            room -= len(offsets)
        else:
            out[partition] += offsets
    error = limits.refusal(refusals[0][0].slice.queue_id, Full(depth, capacity), sum(map(len, out.values())))
    for partition, offsets in out.items():
        draft = by_partition[partition]
        for offset in sorted(offsets, reverse=True):
            transaction_id = draft.slice.transaction_ids[offset]
            outcome = PushOutcome(
                status="refused", transaction_id=transaction_id, depth=depth, capacity=capacity, error=error
            )
            flush.settle(draft, draft.drop(offset), outcome)
