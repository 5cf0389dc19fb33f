"""Values of cancellations between the broker and a store."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec


class CancelledLane(msgspec.Struct, frozen=True):
    """The result of cancelling a message for one group, or for groups that are created later (0).

    `already`: it was cancelled before. `finished`: the group has finished or dead-lettered it.
    """

    group_id: int
    state: Literal["cancelled", "already", "finished"]
    token: UUID | None
    """Token of the lease that held the message."""
