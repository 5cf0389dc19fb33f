"""A fair queue: serves each owner of waiting requests equally, however many requests others have."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Requests of several owners, served by start-time fair queuing.

    The owner with the fewest items served is next, and of several the one with the smallest request. Each owner's
    requests keep their order. An owner without waiting requests starts at the current position of the others.
    """

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[tuple[T, int]]] = {}
        self._order: list[tuple[int, int, int, Hashable]] = []
        """A heap of the waiting owners, by their items served and the items of their first request."""
        self._served: dict[Hashable, int] = {}
        """Items served of owners without waiting requests. Cleared when no request waits."""
        self._now = 0
        self._numbers = count()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, owner: Hashable, one: T, items: int) -> None:
        self._count += 1
        line = self._lines.get(owner)
        if line is not None:
            line.append((one, items))
            return
        self._lines[owner] = deque([(one, items)])
        heappush(self._order, (max(self._now, self._served.pop(owner, 0)), items, next(self._numbers), owner))

    def first(self) -> T:
        """Return the next request without removing it."""
        return self._lines[self._order[0][3]][0][0]

    def pop(self) -> T:
        """Remove and return the next request."""
        self._now, _, _, owner = self._order[0]
        line = self._lines[owner]
        one, items = line.popleft()
        self._count -= 1
        served = self._now + items
        if line:
            heapreplace(self._order, (served, line[0][1], next(self._numbers), owner))
            return one
        heappop(self._order)
        del self._lines[owner]
        self._served[owner] = served
        if not self._lines:
            self._served.clear()
        return one

    def items_of(self, owner: Hashable) -> int:
        """Return the number of waiting items of an owner."""
        return sum(items for _, items in self._lines.get(owner, ()))

    def owners(self) -> set[Hashable]:
        """Return the owners with waiting requests."""
        return set(self._lines)

    def drain(self) -> Iterator[T]:
        """Remove and yield all requests, in turns."""
        while self._count:
            yield self.pop()
