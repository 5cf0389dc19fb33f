"""The store contract of statistics. What `contract.store` says of all verbs holds.

Nothing is counted message by message: numbers come from heads and cursors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fairlane.model.ids import PartitionId
from fairlane.model.limits import NEVER_AT
from fairlane.model.stats import ActiveLease, GroupStats, LaggingLane, PartitionStats, QueueStats, Standing


class Statistics(Protocol):
    """Statistics: what queues hold, in numbers, and how far groups are."""

    async def queues(self, queue_ids: Sequence[int]) -> list[QueueStats]:
        """One for each queue that is there, in the order asked."""
        ...

    async def partitions(self, queue_id: int, *, after: str = "", limit: int = 1000) -> list[PartitionStats]:
        """Partitions whose name is greater than `after`, by name."""
        ...

    async def groups(self, queue_ids: Sequence[int]) -> list[GroupStats]:
        """One for each group of these queues, in no order."""
        ...

    async def lagging(self, queue_ids: Sequence[int], *, oldest_before: int, limit: int = 1000) -> list[LaggingLane]:
        """Lanes whose first unfinished message came before this time, oldest first."""
        ...

    async def leases(
        self, queue_ids: Sequence[int], *, group: str | None = None, ends_before: int = NEVER_AT, limit: int = 1000
    ) -> list[ActiveLease]:
        """Live leases, of one group or of all, that end before this time unless they are renewed, the next to end
        first."""
        ...

    async def standings(self, partitions: Sequence[PartitionId]) -> list[Standing]:
        """Every group's cursor in these partitions, by partition and group."""
        ...

    async def dead_among(self, positions: Sequence[tuple[PartitionId, int]]) -> set[tuple[PartitionId, int]]:
        """Those of the messages that some group gave up on."""
        ...
