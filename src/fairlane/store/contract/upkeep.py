"""The store contract: what keeps the store itself in order. What `contract.store` says of all verbs holds."""

from __future__ import annotations

from builtins import list as List  # a family has a verb of that name
from collections.abc import Sequence
from typing import Protocol

from fairlane.model.retention import Retained, Step


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
