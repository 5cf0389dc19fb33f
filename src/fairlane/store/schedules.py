"""Schedules: the store contract. What `store.base` says of all verbs holds."""

from __future__ import annotations

from builtins import list as List  # the family has a verb of that name
from collections.abc import Sequence
from typing import Protocol

from fairlane.model.schedule import Advance, Schedule
from fairlane.store.values import PushResult, Settled, Settlement, Slice, Verdicts


class Schedules(Protocol):
    """Schedules, by tenant and name. Each change gives one the revision that the caller made for it."""

    async def put(self, schedule: Schedule) -> Schedule:
        """Make it, or replace what has its name; a paused one stays paused. If its options are those that are
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

    async def transact(
        self, step: Advance, settlements: Sequence[Settlement | Verdicts], slices: Sequence[Slice]
    ) -> tuple[List[Settled], List[PushResult]]:
        """`Messages.transact` and the step in the same transaction: all of it, or nothing. Conflict if the schedule
        has another revision by now, or is gone."""
        ...
