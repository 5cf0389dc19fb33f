"""Shards: the values of the distribution column, and which of them a queue is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# 32 values that Citus spreads over 32 physical shards, one each; 0 first, so that a single shard is 0.
VALUES: Final = (
    *(0, 8, 1, 31, 24, 10, 48, 5, 50, 4, 17, 16, 85, 36, 37, 3),
    *(52, 62, 136, 28, 6, 21, 39, 13, 2, 27, 58, 41, 9, 22, 11, 18),
)
SHARDS_MAX: Final = len(VALUES)


def shard_of(shards: Sequence[int], queue_id: int) -> int:
    """The shard of all partitions of a queue: a flush for one queue, and every pop, is one call."""
    return shards[queue_id % len(shards)]
