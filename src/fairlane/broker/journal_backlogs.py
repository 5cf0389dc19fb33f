"""The backlogs that have entries in the journal. What comes for one of them follows those."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable

from fairlane.errors import FairlaneError, JournalFull
from fairlane.runtime.clock import wall_clock
from fairlane.store.contract.journal import Backlog, Journal, NewEntry


class JournalBacklogs:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._counts: Counter[Backlog] = Counter()
        self._turns: OrderedDict[tuple[str, str, str], OrderedDict[Backlog, None]] = OrderedDict()
        """The backlogs of each queue (of acks: of each group) in the order in which it is their turn."""
        self.added = asyncio.Event()
        """Set when there is something to drain."""
        self._left: deque[tuple[float, int]] = deque(maxlen=100)

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, backlog: Backlog) -> bool:
        return backlog in self._counts

    def names(self) -> list[Backlog]:
        return list(self._counts)

    def count(self, backlog: Backlog) -> int:
        return self._counts[backlog]

    def turn(self, kind: str, most: int, resting: Callable[[Backlog], bool]) -> list[Backlog]:
        """The backlogs whose turn it is, of each queue one after the other; none twice, and none that rests. It is not
        their turn again before all others had theirs."""
        found: list[Backlog] = []
        queues = deque((key, len(backlogs)) for key, backlogs in self._turns.items() if key[0] == kind)
        while queues and len(found) < most:
            key, left = queues.popleft()
            backlogs = self._turns[key]
            while left:
                left -= 1
                backlog = next(iter(backlogs))
                backlogs.move_to_end(backlog)
                if not resting(backlog):
                    found.append(backlog)
                    self._turns.move_to_end(key)
                    queues.append((key, left))
                    break
        return found

    def hold(self, backlogs: dict[Backlog, int]) -> None:
        """Entries that came into the journal by another process."""
        self._add(backlogs)
        if backlogs:
            self.added.set()

    def let_go(self, backlogs: Iterable[Backlog]) -> None:
        """One entry less is in each."""
        gone = []
        for backlog in backlogs:
            self._counts[backlog] -= 1
            if self._counts[backlog] <= 0:
                del self._counts[backlog]
                self._end_turns(backlog)
                gone.append(backlog)
        if gone:
            self.journal.released(gone)

    def _add(self, backlogs: dict[Backlog, int]) -> None:
        self._counts.update(backlogs)
        for backlog in backlogs:
            self._turns.setdefault(backlog[:3], OrderedDict()).setdefault(backlog)

    def _end_turns(self, backlog: Backlog) -> None:
        backlogs = self._turns.get(backlog[:3])
        if backlogs is not None:
            backlogs.pop(backlog, None)
            if not backlogs:
                del self._turns[backlog[:3]]

    async def append(self, entries: list[NewEntry]) -> FairlaneError | None:
        """Append entries and hold their backlogs, from now on; the error if they could not be appended."""
        backlogs = [entry.backlog for entry in entries]
        self._add(Counter(backlogs))
        try:
            await self.journal.append(entries)
        except FairlaneError as error:
            self.let_go(backlogs)
            return error
        self.added.set()
        return None

    def estimate(self) -> float:
        """Seconds that what comes now will wait: as long as the oldest has, or as what is there takes to drain."""
        state = self.journal.state()
        waited = 0.0 if state.oldest_at is None else (wall_clock() - state.oldest_at) / 1e6
        rate = self.rate()
        return round(max(1.0, waited, state.messages / rate if rate else 0.0), 2)

    def left(self, messages: int) -> None:
        """So many went from the journal into the store."""
        self._left.append((time.monotonic(), messages))

    def rate(self) -> float:
        """Messages that left the journal a second, lately; 0 when unknown."""
        now = time.monotonic()
        lately = [(at, count) for at, count in self._left if now - at < 10]
        span = now - lately[0][0] if lately else 0.0
        return sum(count for _, count in lately) / max(span, 0.1) if lately else 0.0

    def full(self) -> JournalFull:
        state = self.journal.state()
        return JournalFull(
            f"the journal is full: {state.bytes} of {state.bytes_max} bytes; it empties when the store is back"
        )
