"""The store contract for specs that were applied. What `store.base` says of all verbs holds here."""

from __future__ import annotations

from typing import Final, Protocol

from fairlane.model.spec_version import SpecChange, SpecVersion

SPECS: Final = 0
"""In the place of a queue's id among the changes of the catalogue: a spec was applied."""
TAKEN: Final = "another spec was applied meanwhile; plan again"


class Specs(Protocol):
    """Specs that were applied, by tenant: every version, for good."""

    async def apply(self, change: SpecChange) -> SpecVersion:
        """Record the version, make and configure its queues, delete those that are gone, and put its schedules, all of
        it or nothing; the version as it is stored. A new queue gets labels from its name, an old one keeps its own.

        Conflict, and nothing done, if that version is taken, a queue is not what it was `before`, or one cannot become
        what it is to be. The version of the catalogue rises for each queue, and once more for SPECS."""
        ...

    async def in_force(self, tenant: str) -> list[SpecVersion]:
        """The latest version of each app, by name."""
        ...

    async def get(self, tenant: str, version: int) -> SpecVersion | None: ...

    async def versions(
        self, tenant: str, *, app: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[SpecVersion]:
        """Of one app or of all, newest first, without their texts; `before` is the last one seen."""
        ...


def changed(name: str) -> str:
    return f"queue {name!r:.80} was changed meanwhile; plan again"
