"""Shapes of scheduled messages."""

from __future__ import annotations

import msgspec

from fairlane.model.moment import timestamp
from fairlane.store.contract import values
from fairlane.wire.base import Limit


class Wire(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """camelCase on the wire."""


class ScheduledQuery(Wire, rename="camel", kw_only=True):
    after: str = ""
    """`next` of the page before."""
    limit: Limit = 100


class ScheduledMessage(Wire, rename="camel", kw_only=True):
    id: str
    transaction_id: str
    queue: str
    partition: str
    partition_id: str
    deliver_at: str


class ScheduledList(Wire, rename="camel", kw_only=True):
    messages: list[ScheduledMessage]
    """Next due first."""
    next: str | None
    """Where the next page begins; null on the last."""


class RescheduleBody(Wire, rename="camel", kw_only=True):
    """The new delivery time: one of these."""

    deliver_at: str | None = None
    delay_ms: int | None = None


class Rescheduled(Wire, rename="camel", kw_only=True):
    queue: str
    partition: str
    transaction_id: str
    rescheduled: bool
    """False: the message does not wait any more, or never did."""
    deliver_at: str | None


class Cancelled(Wire, rename="camel", kw_only=True):
    queue: str
    partition: str
    transaction_id: str
    cancelled: bool


def scheduled_out(queue: str, found: list[values.ScheduledMessage], limit: int) -> ScheduledList:
    last = found[-1] if len(found) == limit else None
    return ScheduledList(
        messages=[
            ScheduledMessage(
                id=one.message_id,
                transaction_id=one.transaction_id,
                queue=queue,
                partition=one.partition_name,
                partition_id=str(one.partition),
                deliver_at=timestamp(one.due_at),
            )
            for one in found
        ],
        next=None if last is None else f"{last.due_at}.{last.message_id}",
    )
