"""Leases on the wire, and the share of partitions that are leased."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.model.limits import LEASE_SECONDS_MAX
from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit


class ExtendBody(Body):
    seconds: int = 60


class CancelledPosition(Answer):
    partition_id: str
    position: int


class Renewed(Answer):
    lease_id: str
    success: bool
    renewed: int
    new_expires_at: Moment | None
    expires_at: Moment | None
    """End of the lease under another name, for published clients."""
    lease_expires_at: Moment | None = msgspec.field(name="lease_expires_at")
    error: str | msgspec.UnsetType = msgspec.UNSET
    cancelled: list[CancelledPosition] = msgspec.field(default_factory=list)
    """Messages of the lease that were cancelled. It does not hold them anymore."""


class Released(Answer):
    lease_id: str
    released: int


class LeaseQuery(Body):
    queue: str | None = None
    consumer_group: str | None = None
    ending_within: Annotated[int, msgspec.Meta(ge=1, le=LEASE_SECONDS_MAX)] | None = None
    """Largest number of seconds until the lease ends."""
    limit: Limit = 100


class LeaseDetail(Answer):
    """A live lease in one partition."""

    lease_id: str
    queue: str
    partition: str
    partition_id: str
    consumer_group: str
    leased_at: Moment
    expires_at: Moment
    seconds_held: float
    seconds_remaining: float
    messages: int
    completed: int
    """Messages of the lease that are completed."""


class LeaseList(Answer):
    leases: list[LeaseDetail]


class GroupUse(Answer):
    """Use of a queue by one group.

    `utilisation` is the share of partitions with messages to read that consumers hold now.
    """

    consumer_group: str
    partitions: int
    partitions_with_messages: int
    partitions_leased: int
    messages_leased: int
    pending: int
    oldest_at: Moment | None
    """Time of the oldest message that the group has not finished."""
    utilisation: float
    blocked: int
    """Lanes stopped by a message that has used up its attempts."""
    parked: int
    """Parked lanes: set aside with a message that has used up its attempts, or by an operator."""
    paused: int
    """Lanes whose partition is paused."""
    retrying: int
    """Other lanes with a message that failed and will be delivered again."""


class Utilisation(Answer):
    queue: str
    partitions: int
    depth: int
    capacity: int | None
    remaining: int | None
    groups: list[GroupUse]
    stats_age: int
    """Seconds since this was counted. 0 unless there are very many partitions."""
