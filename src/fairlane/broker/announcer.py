"""The announcer: wakes long polls, here and at other brokers, when there may be something for them."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.broker.waiters import NOT_MADE_YET, Waiters
from fairlane.store.contract.store import Store
from fairlane.telemetry import Telemetry


class Announcer:
    def __init__(self, store: Store, waiters: Waiters, telemetry: Telemetry) -> None:
        self._store = store
        self._waiters = waiters
        self._telemetry = telemetry
        self._ready: dict[int, int] = {}

    def stored(self, queue_id: int, lanes: Sequence[Sequence[tuple[int, int]]]) -> None:
        """A flush filled these lanes; the messages of each are those of these (request, item)."""
        self._ready[queue_id] = self._ready.get(queue_id, 0) + len(lanes)
        counts = self._telemetry.queue(queue_id)
        for owners in lanes:
            counts.pushed += len(owners)
            counts.pushes += 1 if owners[0][0] == owners[-1][0] else len({request for request, _ in owners})

    def flushed(self) -> None:
        """Wake polls once for all lanes that a flush filled."""
        ready, self._ready = self._ready, {}
        waiters = self._waiters
        if NOT_MADE_YET in waiters.parked:
            waiters.wake(NOT_MADE_YET, len(waiters))
        for queue_id, lanes in ready.items():
            if queue_id in waiters.parked:
                waiters.wake(queue_id, lanes)
            if not self._store.alone:
                self._store.hint(queue_id)

    def appended(self, queue_id: int, count: int) -> None:
        """Messages came that nobody pushes now: they waited for their time, or as operations."""
        self._telemetry.queue(queue_id).pushed += count
        self.announce(queue_id, 1)

    def announce(self, queue_id: int, lanes: int) -> None:
        """Lanes of a queue became ready, however that came."""
        self._ready[queue_id] = self._ready.get(queue_id, 0) + lanes
        self.flushed()
