"""The store contract: messages for later. What `store.base` says of all verbs holds."""

from __future__ import annotations

from builtins import list as List  # a family has a verb of that name
from collections.abc import Sequence
from typing import Protocol

from fairlane.model.ids import PartitionId
from fairlane.model.recurring import Advance, Schedule
from fairlane.store.values import (
    Duplicates,
    Fired,
    Gone,
    Kept,
    PushResult,
    Scheduled,
    Settled,
    Settlement,
    Slice,
    Verdicts,
    Waiting,
)


class ScheduledMessages(Protocol):
    """Messages that are kept aside until they are due. They have no position before that, block nobody, and are no part
    of the queue's depth; `created_at` is the time when they are appended."""

    async def add(self, parts: Sequence[Scheduled]) -> List[Kept | Duplicates | Gone]:
        """Keep each part, all of it or nothing, and say which, in order; at most one part a partition and call. A given
        id that waits in the partition already makes its part `Duplicates`, and so does one that is stored there and
        younger than `dedup_seconds`. `Gone`: look again."""
        ...

    async def fire(self, *, limit: int = 1000) -> Fired:
        """Append up to `limit` messages that are due, oldest first, in steps that are atomic: each comes once, whoever
        else fires at the same time. One whose id was stored meanwhile is dropped. What does not fit into a full
        queue waits a second; what has no queue any more is dropped."""
        ...

    async def cancel(self, partition: PartitionId, transaction_id: str) -> bool:
        """Forget the message; False if it does not wait (any more)."""
        ...

    async def reschedule(
        self, partition: PartitionId, transaction_id: str, *, due_at: int | None = None, delay_ms: int = 0
    ) -> int | None:
        """Let the message be due at another time, or after a delay from now; that time, None if it does not wait
        (any more)."""
        ...

    async def list(self, queue_id: int, *, after: tuple[int, str] | None = None, limit: int = 100) -> List[Waiting]:
        """What waits, next due first; `after` is (due_at, message_id) of the last one seen."""
        ...

    async def next_in(self) -> int | None:
        """Microseconds until the next message of any queue is due, below 0 if it is late; None if none waits."""
        ...


class Recurring(Protocol):
    """Schedules, by tenant and name. Each change gives one the revision that the caller made for it."""

    async def put(self, schedule: Schedule) -> Schedule:
        """Make it, or replace what has its name; a paused one stays paused. If the definition is the one that is
        stored, nothing changes. What is stored afterwards."""
        ...

    async def get(self, tenant: str, name: str) -> Schedule | None: ...

    async def list(self, tenant: str) -> List[Schedule]:
        """By name."""
        ...

    async def delete(self, tenant: str, name: str) -> bool: ...

    async def turn(self, tenant: str, name: str, revision: str, next_at: int | None) -> Schedule | None:
        """Pause it with None, or let it go on at a time; None if it is not there. Pausing twice is as good as once."""
        ...

    async def due(self, *, limit: int) -> List[Schedule]:
        """Those of all tenants whose time has come, longest due first."""
        ...

    async def next_in(self) -> int | None:
        """Microseconds until the first one is due, 0 or less if one is; None if none waits."""
        ...

    async def advance(self, step: Advance) -> bool:
        """Let it wait for its next tick; False and nothing done if it has another revision by now."""
        ...

    async def fire(
        self, step: Advance, settlements: Sequence[Settlement | Verdicts], slices: Sequence[Slice]
    ) -> tuple[List[Settled], List[PushResult]]:
        """`Messages.transact` and the step in the same transaction: all of it, or nothing. Conflict if the schedule
        has another revision by now, or is gone."""
        ...
