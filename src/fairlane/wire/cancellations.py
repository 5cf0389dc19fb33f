"""Cancellations on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fairlane.model.names import DEFAULT_PARTITION
from fairlane.wire.base import Answer, Body

Before = Literal["scheduled", "pending", "processing", "cancelled"]
LEASES_MAX = 1000
WATCH_MS_MAX = 10_000


class CancelAtBody(Body):
    consumer_group: str | None = None
    """Consumer group. The default is every group that has not finished the message, and groups created later."""


class CancelBody(CancelAtBody):
    partition: str = DEFAULT_PARTITION


class CancelledMessage(Answer):
    """A cancelled message. It is not delivered to these groups again, and is no dead letter."""

    queue: str
    partition: str
    partition_id: str
    transaction_id: str
    before: Before
    """Its status before: `cancelled` if this call changed nothing."""
    consumer_groups: list[str]
    """Groups for which it is cancelled. Empty for a scheduled message, and if no group reads the queue yet."""
    status: Literal["cancelled"] = "cancelled"


class WatchBody(Body):
    leases: Annotated[list[str], msgspec.Meta(max_length=LEASES_MAX)]
    timeout: Annotated[int, msgspec.Meta(ge=0, le=WATCH_MS_MAX)] = 0
    """Longest wait in milliseconds for the first cancelled message."""


class CancelledInLease(Answer):
    """A message that was cancelled while a lease held it."""

    lease_id: str
    partition_id: str
    position: int


class CancelledInLeases(Answer):
    messages: list[CancelledInLease]
