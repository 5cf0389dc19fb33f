"""Shapes of pauses, and of why a lane does not move."""

from __future__ import annotations

import msgspec

from fairlane.model.explanation import Explanation
from fairlane.model.moment import timestamp, timestamp_or_none
from fairlane.model.queue import Paused


class Wire(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """camelCase on the wire."""


class PauseBody(Wire, rename="camel", kw_only=True):
    """Nothing: the whole queue. A group, a partition for all groups, or both: one lane."""

    group: str | None = None
    partition: str | None = None


class ResumeBody(Wire, rename="camel", kw_only=True):
    group: str | None = None
    partition: str | None = None
    lanes: bool = False
    """All blocked and parked lanes of the group, instead of the group itself."""


class PausedThing(Wire, rename="camel", kw_only=True):
    queue: str
    group: str | None
    partition: str | None
    paused: bool


class Resumed(Wire, rename="camel", kw_only=True):
    queue: str
    group: str | None
    partition: str | None
    paused: bool
    resumed: int
    """How many things, or lanes, were resumed; 0: none was paused."""


class PauseList(Wire, rename="camel", kw_only=True):
    queue: str
    paused_at: str | None
    groups: dict[str, str]
    """Since when, by name."""
    partitions: dict[str, str]


class ExplainQuery(Wire, rename="camel", kw_only=True):
    group: str | None = None


class Explained(Wire, rename="camel", kw_only=True):
    queue: str
    partition: str
    group: str
    reason: str
    """paused, leased, empty, operations_pending, parked, blocked, windowed, delayed, backing_off, asleep, sealed or
    ready."""
    sentence: str
    until: str | None
    """When the reason ends by itself."""
    waiting: int
    position: int
    """Of the first message that is not finished."""
    head: int
    attempts: int
    attempts_max: int
    error: str | None
    oldest_at: str | None
    lease_ends_at: str | None
    leased: int
    next_try_at: str | None
    """When the lane may be read next; of an unordered queue with nothing new, when its first message may come again."""
    operations: int
    """Pushes to the partition that wait to be applied."""
    dead_letters: int
    expired: int


def paused_out(queue: str, paused: Paused) -> PauseList:
    return PauseList(
        queue=queue,
        paused_at=timestamp_or_none(paused.queue_at),
        groups={name: timestamp(at) for name, at in paused.groups.items()},
        partitions={name: timestamp(at) for name, at in paused.partitions.items()},
    )


def explained_out(queue: str, group: str, found: Explanation, attempts_max: int) -> Explained:
    lane = found.lane
    return Explained(
        queue=queue,
        partition=lane.name,
        group=group,
        reason=found.reason,
        sentence=found.sentence,
        until=timestamp_or_none(found.until),
        waiting=found.waiting,
        position=lane.committed,
        head=lane.head,
        attempts=lane.attempts,
        attempts_max=attempts_max,
        error=lane.error,
        oldest_at=timestamp_or_none(lane.oldest_at),
        lease_ends_at=timestamp_or_none(lane.lease_ends_at),
        leased=0 if lane.leased_until is None else lane.leased_until - lane.committed,
        next_try_at=timestamp_or_none(lane.ready_at),
        operations=lane.operations,
        dead_letters=lane.dead,
        expired=lane.expired,
    )
