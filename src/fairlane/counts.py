"""Counts of calls and messages: by second, bin and minute, and by queue."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class QueueCounts(msgspec.Struct):
    """Counts of one queue in one bin or one minute."""

    pushes: int = 0
    pushed: int = 0
    pops: int = 0
    popped: int = 0
    pops_empty: int = 0
    acks: int = 0
    failed: int = 0
    dead: int = 0
    expired: int = 0
    lag_ms: float = 0.0
    lag_max_ms: float = 0.0
    """Age of the first message of each pop: the sum and the maximum."""
    ages: dict[int, int] = {}
    """Pops by the age of their first message: the bit length of its milliseconds, halved and rounded up."""

    def add(self, more: QueueCounts) -> None:
        for name in QueueCounts.__struct_fields__[:-2]:
            setattr(self, name, getattr(self, name) + getattr(more, name))
        self.lag_max_ms = max(self.lag_max_ms, more.lag_max_ms)
        if more.ages:  # a new dictionary, because a copy of these counts shares the old one
            self.ages = {age: self.ages.get(age, 0) + more.ages.get(age, 0) for age in self.ages.keys() | more.ages}

    def mean_lag_ms(self) -> float:
        full = self.pops - self.pops_empty
        return self.lag_ms / full if full else 0.0


class Tally(NamedTuple):
    calls: int
    items: int
    errors: int


class Step(NamedTuple):
    """A second or a minute of all queues together.

    It has the messages by event (`COUNTED`), and the median and 99th percentile of each verb of `CLOCKED` in seconds,
    None if there was no call.
    """

    at: int
    counts: tuple[int, ...]
    latencies: tuple[float | None, ...]
    depth: int | None
    oldest_at: int | None
    lag: int | None = None
    """Lag of one group, if it was requested."""
    times: tuple[float, int, float] | None = None
    """Milliseconds in the queue of what was popped: in total, the number of pops, and the maximum."""


class Bin(NamedTuple):
    """A few seconds of telemetry, by queue."""

    at: int
    queues: dict[int, QueueCounts]
    lags: dict[int, int]
    """Unfinished messages of each group at the last count."""
    depths: dict[int, int]
    """Unfinished messages of each queue at the last count, also of queues without activity."""


class Minute(msgspec.Struct):
    """A minute of telemetry, by verb and by queue."""

    at: int
    base: dict[str, Tally] = {}
    verbs: dict[str, Tally] = {}
    queues: dict[int, QueueCounts] = {}
    cpu_seconds: tuple[float, float] = (0.0, 0.0)
    resident_bytes: int = 0
    step: Step | None = None
