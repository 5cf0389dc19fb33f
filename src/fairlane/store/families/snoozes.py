"""Snoozed findings."""

from __future__ import annotations

import msgspec

from fairlane.model.moment import Moment
from fairlane.store.families.query import Family


class Snooze(msgspec.Struct, frozen=True):
    """A finding that is snoozed until a time or, with `severity`, until it gets worse."""

    key: str
    until: Moment
    caller: str
    """Name of the caller, as in the audit log."""
    severity: str | None = None
    """Severity of the finding when it was snoozed. None if a change does not end the snooze."""
    count: int | None = None
    """Count of the finding when it was snoozed."""


class Snoozes(Family):
    async def all(self, tenant: str) -> list[Snooze]:
        """Return the current snoozes of a tenant, by key."""
        return [
            Snooze(key, Moment(until), *rest)
            for key, until, *rest in await self._runner.read("snoozes.all", tenant=tenant)
        ]

    async def set(self, tenant: str, snooze: Snooze) -> None:
        """Snooze a finding, in place of an earlier snooze of it. Deletes expired snoozes."""
        await self._runner.write("snoozes.forget")
        await self._runner.write("snoozes.set", tenant=tenant, **msgspec.structs.asdict(snooze))

    async def end(self, tenant: str, key: str) -> bool:
        """End a snooze. Returns False if the finding is not snoozed."""
        return bool(await self._runner.write("snoozes.end", tenant=tenant, key=key))
