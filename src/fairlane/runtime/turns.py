"""Turns: an order in which the owners of waiting requests take turns, so that none waits behind all of another's."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import TypeVar

T = TypeVar("T")


def in_turns(waiting: Sequence[T], owner: Callable[[T], Hashable], items: Callable[[T], int], *, count: int) -> list[T]:
    """Return the requests with the first `count` in turns; the others follow in their order.

    The next request is always one of the owner with the fewest items so far. Each owner's requests keep their order.
    """
    lines: dict[Hashable, deque[T]] = {}
    for one in waiting:
        lines.setdefault(owner(one), deque()).append(one)
    turns = [(0, number, key) for number, key in enumerate(lines)]
    heapify(turns)
    first: list[T] = []
    taken: Counter[Hashable] = Counter()
    while turns and len(first) < count:
        so_far, number, key = turns[0]
        one = lines[key].popleft()
        first.append(one)
        taken[key] += 1
        if lines[key]:
            heapreplace(turns, (so_far + items(one), number, key))
        else:
            heappop(turns)
    rest: list[T] = []
    for one in waiting:
        if taken[key := owner(one)]:
            taken[key] -= 1
        else:
            rest.append(one)
    return first + rest
