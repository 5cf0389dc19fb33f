"""Shapes of leases and of how busy a queue is."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.http.wire_queues import Wire
from fairlane.model.limits import LEASE_SECONDS_MAX
from fairlane.model.moment import timestamp
from fairlane.model.stats import ActiveLease
from fairlane.wire.base import Limit


class LeaseQuery(Wire, rename="camel", kw_only=True):
    queue: str | None = None
    consumer_group: str | None = None
    ending_within: Annotated[int, msgspec.Meta(ge=1, le=LEASE_SECONDS_MAX)] | None = None
    """Seconds: only leases that end so soon unless they are renewed."""
    limit: Limit = 100


class LeaseOut(Wire, rename="camel", kw_only=True):
    lease_id: str
    queue: str
    partition: str
    partition_id: str
    consumer_group: str
    leased_at: str
    expires_at: str
    seconds_held: float
    seconds_remaining: float
    messages: int
    completed: int
    """Of these messages."""


class LeaseList(Wire, rename="camel", kw_only=True):
    leases: list[LeaseOut]


class GroupUse(Wire, rename="camel", kw_only=True):
    """A group's use: `utilisation` is the share of the partitions with something to read that consumers hold now."""

    consumer_group: str
    partitions: int
    partitions_with_messages: int
    partitions_leased: int
    messages_leased: int
    pending: int
    utilisation: float


class QueueUse(Wire, rename="camel", kw_only=True):
    queue: str
    partitions: int
    depth: int
    capacity: int | None
    remaining: int | None
    groups: list[GroupUse]


def lease_out(lease: ActiveLease, queue: str, now: int) -> LeaseOut:
    return LeaseOut(
        lease_id=str(lease.lease),
        queue=queue,
        partition=lease.partition_name,
        partition_id=str(lease.partition),
        consumer_group=lease.group,
        leased_at=timestamp(lease.leased_at),
        expires_at=timestamp(lease.ends_at),
        seconds_held=max(0, now - lease.leased_at) / 1e6,
        seconds_remaining=max(0, lease.ends_at - now) / 1e6,
        messages=lease.upto - lease.first,
        completed=lease.committed - lease.first,
    )
