"""The store contract: what keeps the store itself in order. What `contract.store` says of all verbs holds."""

from __future__ import annotations

from builtins import list as List  # a family has a verb of that name
from collections.abc import Sequence
from typing import Protocol

from fairlane.model.ids import PartitionId
from fairlane.model.queue import Paused
from fairlane.model.retention import Retained, Step


class Pauses(Protocol):
    """Pauses: what is kept from being read, paused by an operator, or stopped by a message whose attempts are used up.

    A pause stops handing out and nothing else: pushes, acks and live leases go on, and order is kept."""

    async def pause(self, queue_id: int, *, group_id: int | None = None, partition: PartitionId | None = None) -> bool:
        """Hand out nothing of the queue, of one group, of one partition for all groups, or of one lane (both given:
        it is parked) to pops that begin from now on; False if there is no such thing."""
        ...

    async def resume(self, queue_id: int, *, group_id: int | None = None, partition: PartitionId | None = None) -> bool:
        """Undo the pause of just this thing; False if it was not paused. A lane that is blocked or parked is resumed
        too, and its message's attempts begin anew."""
        ...

    async def resume_lanes(self, group_id: int) -> int:
        """Resume every blocked or parked lane of a group; how many."""
        ...

    async def paused(self, queue_id: int) -> Paused:
        """What is paused of a queue; of its partitions the first thousand of each shard."""
        ...


class Retention(Protocol):
    """Retention: deletes what a queue's rules cover, and nothing else.

    With `retention_enabled`: messages `retention_seconds` old, unless they are in a live lease (cursors that stand
    before them are moved), and messages `completed_retention_seconds` old that every group has finished. Dead letters
    by `dead_letter_retention_seconds` alone. An empty partition that was not written to for IDLE_SECONDS goes, with
    its cursors, unless it has dead letters or state. Ids of messages that went may be pushed anew."""

    async def due(self) -> bool:
        """Whether any queue has a rule or had one lately: otherwise a step would find nothing."""
        ...

    async def step(self, token: int, *, limit: int = 50) -> Step:
        """Look at up to `limit` partitions that are due and delete what may go. LeaseLost unless the token is that of
        the leader of RETENTION. What it costs depends on what is due, not on how many partitions there are."""
        ...

    async def history(self, queue_ids: Sequence[int], *, since: int, until: int) -> List[Retained]:
        """What went in this time, oldest first; kept for HISTORY_SECONDS."""
        ...
