"""Pops on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX, RENEW_SECONDS, WAIT_SECONDS_MAX
from fairlane.model.names import QUEUE_MODE

Count = Annotated[int, msgspec.Meta(ge=1, le=BATCH_ITEMS_MAX)]
SubscriptionMode = Literal["", "all", "new", "new-only", "from_beginning"]
"""Only `new` skips history. The last two are words of published clients, and mean `all` to their own server too."""


class PopQuery(msgspec.Struct, rename="camel"):
    """The query of a pop."""

    batch: Count | None = None
    """1, unless the broker chooses."""
    wait: bool = False
    timeout: Annotated[int, msgspec.Meta(ge=0, le=WAIT_SECONDS_MAX * 1000)] = 30_000
    """Milliseconds that a waiting pop waits at most."""
    consumer_group: str = QUEUE_MODE
    partitions: Count | None = None
    """1, unless the broker chooses."""
    auto_ack: bool = False
    subscription_mode: SubscriptionMode = ""
    subscription_from: str = ""
    lease_seconds: Annotated[int, msgspec.Meta(ge=0, le=LEASE_SECONDS_MAX)] = 0
    """0: as long as the queue says."""
    autopilot: bool = False
    """Leave `batch` and `partitions` to the broker where they are not given."""
    conflation: bool = False
    """Of each partition only the newest message: decided at the group's first pop, and kept."""
    by_lane: bool = False
    """Answer with `lanes` instead of `messages`: less to read, for what the messages of a lane share is said once."""
    look: bool = False
    """A person's: a group that it makes takes no place in a limited queue that consumers read."""


class PopAnyQuery(PopQuery, rename="camel"):
    namespace: str = ""
    task: str = ""


class PoppedLane(msgspec.Struct, rename="camel"):
    """Messages in a row of one lane, as a pop by lanes is answered."""

    partition: str
    partition_id: str
    first: int
    """The position of the first message."""
    created_at: list[tuple[int, int]]
    """(number of messages, when they were stored, in microseconds since 1970), in order."""
    messages: msgspec.Raw
    failed_attempts: int = 0
    """Of the first message."""


class PopAnswer(msgspec.Struct, rename="camel"):
    """The answer of a pop by lanes."""

    queue: str
    consumer_group: str
    lanes: list[PoppedLane]
    lease_id: str | None = None
    ordered: bool = False
    """Nobody else is given messages of these partitions meanwhile."""
    lease_seconds: int = RENEW_SECONDS
    """How long the lease is."""
    retry_delay: int = 0
    """Milliseconds that the queue waits after a failed attempt; not there if it does not."""
