"""Long polls: they wait in memory, without holding resources, until there may be messages for them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from itertools import islice

from fairlane.errors import TooManyPolls

WaitKey = tuple[int, str]
"""Group id, and partition or "" for any."""

NOT_MADE_YET = 0
"""Pseudo queue of polls whose queue or partition does not exist yet. Any push may create it."""
FLOOR_SECONDS = 2.0
"""Interval at which a waiting poll tries again, because hints may be lost."""


class Waiters:
    """Waiting polls.

    Wakes are hints: a woken poll tries again, and waits again if another was faster.
    """

    def __init__(self, polls_max: int) -> None:
        self._polls = 0
        self._polls_max = polls_max
        self.ended = False
        self.parked: dict[int, dict[WaitKey, dict[asyncio.Future[None], None]]] = defaultdict(dict)
        """Waiting polls by queue. Empty entries are removed."""

    def __len__(self) -> int:
        return sum(len(line) for lines in self.parked.values() for line in lines.values())

    def counts(self) -> dict[int, int]:
        """Return the number of waiting polls, by queue."""
        return {queue_id: sum(map(len, lines.values())) for queue_id, lines in self.parked.items()}

    def park(self, queue_id: int, key: WaitKey) -> asyncio.Future[None]:
        """Return a future that a wake completes. It must be removed with `leave`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.parked[queue_id].setdefault(key, {})[future] = None
        return future

    async def wait(self, parked: Collection[asyncio.Future[None]], seconds: float) -> None:
        """Wait until one of them is woken, or for `seconds`.

        Raises TooManyPolls if too many wait: each holds a connection, and pushes need others.
        """
        if self._polls >= self._polls_max:
            raise TooManyPolls(f"{self._polls} long polls wait here already; try again soon, or pop without waiting")
        self._polls += 1
        try:
            await asyncio.wait(parked, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._polls -= 1

    def remove(self, queue_id: int, key: WaitKey, future: asyncio.Future[None]) -> None:
        lines = self.parked.get(queue_id, {})
        line = lines.get(key, {})
        line.pop(future, None)
        if not line:
            lines.pop(key, None)
        if not lines:
            self.parked.pop(queue_id, None)

    def wake(self, queue_id: int, lanes: int, *, group_id: int | None = None) -> None:
        """Wake up to `lanes` polls of each group, or of one group, longest waiting first: lanes may be ready."""
        for (poll_group, _), line in self.parked.get(queue_id, {}).items():
            if group_id is None or group_id == poll_group:
                for future in list(islice((future for future in line if not future.done()), lanes)):
                    future.set_result(None)

    def wake_line(self, queue_id: int, key: WaitKey) -> None:
        """Wake all polls with the same key."""
        for future in self.parked.get(queue_id, {}).get(key, ()):
            if not future.done():
                future.set_result(None)

    def wake_group(self, group_id: int, lanes: int) -> None:
        for queue_id in list(self.parked):
            self.wake(queue_id, lanes, group_id=group_id)

    def end(self) -> None:
        """Wake all polls for good, so that they answer with the current state."""
        self.ended = True
        self.wake_all()

    def wake_all(self) -> None:
        for queue_id in list(self.parked):
            self.wake(queue_id, len(self))
