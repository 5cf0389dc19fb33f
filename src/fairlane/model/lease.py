"""Leases: the exclusive right of one consumer to handle messages of some partitions for a group."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.group import Subscription
from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX, WAIT_SECONDS_MAX
from fairlane.model.names import DEFAULT_TENANT, QUEUE_MODE, check_count, check_flag, check_name

_LEASE = re.compile(r"([1-9]\d{0,18})\.([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.ASCII)


class LeaseId(NamedTuple):
    """Id of a lease. It contains the group, so that any broker finds the lease among the group's live leases."""

    group_id: int
    token: UUID

    def __str__(self) -> str:
        return f"{self.group_id}.{self.token}"

    @classmethod
    def parse(cls, text: object) -> LeaseId | None:
        """Parse the text of a lease id. None for any other text, which callers treat as a lost lease."""
        match = _LEASE.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[1]) >= 2**63:
            return None
        return cls(int(match[1]), UUID(match[2]))


class ReadOptions(TypedDict, total=False):
    """Options of every kind of reader. `PopRequest` has their defaults."""

    group: str
    batch: int
    """Largest number of messages in one pop."""
    partitions: int
    """Largest number of lanes in one pop."""
    partition: str | None
    """Partition to read. None for any."""
    lease_seconds: int | None
    """Length of the lease. None for the length that the queue defines."""
    subscription: Subscription
    """Subscription of the group. It takes effect only at the first pop of the group."""


class PopOptions(ReadOptions, total=False):
    """Options of a pop, except the type of its messages."""

    wait: float
    """Seconds to wait for the first message."""
    auto_ack: bool
    """True to finish messages when they leave the broker. Messages that are lost on the way are lost."""


class PopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pop: which messages to lease, how many, and how long to wait for them."""

    tenant: str = DEFAULT_TENANT
    queue: str
    group: str = QUEUE_MODE
    batch: int = 1
    partitions: int = 1
    partition: str | None = None
    auto_ack: bool = False
    lease_seconds: int | None = None
    wait_seconds: float = 0.0
    subscription: Subscription = Subscription()

    @classmethod
    def of(cls, queue: str, options: PopOptions, tenant: str = DEFAULT_TENANT) -> PopRequest:
        """Create a checked request."""
        given: dict[str, Any] = {**options}
        return cls(tenant=tenant, queue=queue, wait_seconds=given.pop("wait", 0.0), **given).check()

    def check(self) -> PopRequest:
        """Return this request. Raises InvalidRequest if it is invalid."""
        check_name("queue", self.queue)
        check_name("group", self.group)
        check_count("batch", self.batch, least=1, most=BATCH_ITEMS_MAX)
        check_count("partitions", self.partitions, least=1, most=BATCH_ITEMS_MAX)
        if self.partition is not None:
            check_name("partition", self.partition)
        check_flag("auto_ack", self.auto_ack)
        if self.lease_seconds is not None:
            check_count("lease_seconds", self.lease_seconds, least=1, most=LEASE_SECONDS_MAX)
        if not isinstance(self.wait_seconds, int | float) or not 0 <= self.wait_seconds <= WAIT_SECONDS_MAX:
            raise InvalidRequest(f"wait is {self.wait_seconds!r:.40}; it must be 0 to {WAIT_SECONDS_MAX} seconds")
        if not isinstance(self.subscription, Subscription):
            raise InvalidRequest("subscription must be a Subscription")
        self.subscription.check()
        if self.subscription.conflation and (self.auto_ack or self.group == QUEUE_MODE):
            raise InvalidRequest(
                "conflation is for consumer groups, and does not go with finishing at delivery (autoAck)"
            )
        return self
