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

    def stored(self, queue_id: int, owners: Sequence[tuple[int, int]]) -> None:
        """A flush filled a lane; its messages are those of these (request, item)."""
        self._ready[queue_id] = self._ready.get(queue_id, 0) + 1
        counts = self._telemetry.queue(queue_id)
        counts.pushed += len(owners)
        counts.pushes += 1 if owners[0][0] == owners[-1][0] else len({request for request, _ in owners})

    def flushed(self) -> None:
        """Wake polls once for all lanes that a flush filled."""
        ready, self._ready = self._ready, {}
        self._waiters.wake(NOT_MADE_YET, len(self._waiters))
        for queue_id, lanes in ready.items():
            self.announce(queue_id, lanes)

    def appended(self, queue_id: int, count: int) -> None:
        """Messages came that nobody pushes now: they waited for their time, or as operations."""
        self._telemetry.queue(queue_id).pushed += count
        self._waiters.wake(NOT_MADE_YET, len(self._waiters))
        self.announce(queue_id, 1)

    def announce(self, queue_id: int, lanes: int) -> None:
        """Lanes of a queue became ready, however that came."""
        self._waiters.wake(queue_id, lanes)
        self._store.hint(queue_id)
