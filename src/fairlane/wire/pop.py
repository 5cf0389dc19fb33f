"""Pops on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX, RENEW_SECONDS, WAIT_SECONDS_MAX
from fairlane.model.names import QUEUE_MODE
from fairlane.wire.ack import AckElement
from fairlane.wire.problem import Problem

Count = Annotated[int, msgspec.Meta(ge=1, le=BATCH_ITEMS_MAX)]
SubscriptionMode = Literal["", "all", "new", "new-only", "from_beginning"]
"""Subscription mode. Only `new` skips history.

The last two come from published clients, and mean `all` to their own server too.
"""


class PopQuery(msgspec.Struct, rename="camel"):
    """The query of a pop."""

    batch: Count | None = None
    """Largest number of messages. The default is 1, or the broker's choice with `autopilot`."""
    wait: bool = False
    timeout: Annotated[int, msgspec.Meta(ge=0, le=WAIT_SECONDS_MAX * 1000)] = 30_000
    """Longest wait of a waiting pop in milliseconds."""
    consumer_group: str = QUEUE_MODE
    partitions: Count | None = None
    """Largest number of partitions. The default is 1, or the broker's choice with `autopilot`."""
    auto_ack: bool = False
    subscription_mode: SubscriptionMode = ""
    subscription_from: str = ""
    lease_seconds: Annotated[int, msgspec.Meta(ge=0, le=LEASE_SECONDS_MAX)] = 0
    """Length of the lease. 0 for the length that the queue defines."""
    autopilot: bool = False
    """True to let the broker choose `batch` and `partitions` if they are not given."""
    conflation: bool = False
    """True to get only the newest message of each partition. Decided at the group's first pop."""
    by_lane: bool = False
    """True to answer with `lanes` instead of `messages`, which states the common fields of a lane only once."""
    look: bool = False
    """True for a person's pop: a group that it creates takes no place in a limited queue that consumers read."""


class PopAnyQuery(PopQuery, rename="camel"):
    namespace: str = ""
    task: str = ""


class PopAnswerLane(msgspec.Struct, rename="camel"):
    """Consecutive messages of one lane, in the answer of a pop by lanes."""

    partition: str
    partition_id: str
    first: int
    """Position of the first message."""
    created_at: list[tuple[int, int]]
    """Pairs of a number of messages and their time in microseconds since 1970, in order."""
    messages: msgspec.Raw
    failed_attempts: int = 0
    """Failed attempts of the first message."""


class PopAnswer(msgspec.Struct, rename="camel"):
    """The answer of a pop by lanes."""

    queue: str
    consumer_group: str
    lanes: list[PopAnswerLane]
    lease_id: str | None = None
    ordered: bool = False
    """True if no other consumer gets messages of these partitions meanwhile."""
    lease_seconds: int = RENEW_SECONDS
    """Length of the lease in seconds."""
    retry_delay: int = 0
    """Milliseconds that the queue waits after a failed attempt. Omitted if it does not wait."""


class AckAndPopAnswer(PopAnswer, rename="camel", kw_only=True):
    """The answer of an ack and pop by lanes."""

    acknowledgments: list[AckElement]
    problem: Problem | None = None
    """Reason why the pop failed."""
