"""The history of a store: one sample per minute of each queue and group, and of everything together."""

from __future__ import annotations

from typing import Final, NewType

import msgspec

HISTORY: Final = "history"
"""Name of the service."""
KEEP_DAYS: Final = 30
KEEP_MINUTES: Final = KEEP_DAYS * 24 * 60
SUBJECTS_MAX: Final = 1000
"""Queues, and groups, that a broker records one by one in each minute: those with the most messages."""
_KINDS: Final = 4
_QUEUE, _GROUP = 1, 2


Subject = NewType("Subject", int)
"""A series of samples: a number that contains its kind and its id."""
EVERYTHING: Final = Subject(0)
"""The subject of samples of all queues together. Each minute in which a broker ran has one."""


def of_queue(queue_id: int) -> Subject:
    return Subject(queue_id * _KINDS + _QUEUE)


def of_group(group_id: int) -> Subject:
    return Subject(group_id * _KINDS + _GROUP)


class MinuteSample(msgspec.Struct, array_like=True):
    """One minute: the messages by event, and the state at the end of the minute if it was measured."""

    pushed: int = 0
    popped: int = 0
    acked: int = 0
    failed: int = 0
    dead: int = 0
    expired: int = 0
    depth: int | None = None
    """Unfinished messages of a queue, or the lag of a group."""
    oldest_ms: int | None = None
    """Age of the oldest of them."""
    latencies_us: list[int | None] = []
    """Median and 99th percentile of push, pop and ack, of the slowest process."""
    reads: int = 0
    """Pops that returned messages."""
    wait_ms: int = 0
    """Time in the queue of their first messages, in total."""
    wait_max_ms: int = 0

    def add(self, more: MinuteSample) -> None:
        """Add a sample of the same minute, from another process or from the broker that measures the state."""
        for name in ("pushed", "popped", "acked", "failed", "dead", "expired", "reads", "wait_ms"):
            setattr(self, name, getattr(self, name) + getattr(more, name))
        self.wait_max_ms = max(self.wait_max_ms, more.wait_max_ms)
        self.depth = self.depth if more.depth is None else more.depth
        self.oldest_ms = self.oldest_ms if more.oldest_ms is None else more.oldest_ms
        if more.latencies_us:
            mine = self.latencies_us or [None] * len(more.latencies_us)
            self.latencies_us = [
                max((one for one in pair if one is not None), default=None)
                for pair in zip(mine, more.latencies_us, strict=True)
            ]
