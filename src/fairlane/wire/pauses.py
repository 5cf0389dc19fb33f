"""Pauses on the wire, lanes, and why one does not move."""

from __future__ import annotations

from typing import Literal

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit

LaneStateName = Literal["finished", "leased", "waiting", "delayed", "failed", "blocked", "parked", "paused"]


class PauseBody(Body):
    """Nothing: the whole queue. A group, a partition for all groups, or both: one lane."""

    group: str | None = None
    partition: str | None = None


class ResumeBody(PauseBody):
    lanes: bool = False
    """All blocked and parked lanes of the group, instead of the group itself."""


class PausedThing(Answer):
    queue: str
    group: str | None
    partition: str | None
    paused: bool


class Resumed(PausedThing):
    resumed: int
    """How many things, or lanes, were resumed; 0: none was paused."""


class Pauses(Answer):
    """Pauses of a queue, each since when."""

    queue: str
    paused_at: Moment | None
    groups: dict[str, Moment]
    """By name."""
    partitions: dict[str, Moment]


class ExplainQuery(Body):
    group: str | None = None


class Explained(Answer):
    """The explanation why a lane does not move."""

    queue: str
    partition: str
    group: str
    reason: str
    """paused, leased, empty, operations_pending, parked, blocked, windowed, delayed, backing_off, asleep, sealed or
    ready."""
    sentence: str
    until: Moment | None
    """When the reason ends by itself."""
    waiting: int
    position: int
    """Of the first message that is not finished."""
    head: int
    attempts: int
    attempts_max: int
    error: str | None
    oldest_at: Moment | None
    lease_ends_at: Moment | None
    leased: int
    next_try_at: Moment | None
    """When the lane may be read next; of an unordered queue with nothing new, when its first message may come again."""
    operations: int
    """Pushes to the partition that wait to be applied."""
    acks: int
    """Accepted acks of the lane that wait to be applied: as operations, or in the journal of the broker that is
    asked."""
    dead_letters: int
    expired: int


class LanesQuery(ExplainQuery):
    state: LaneStateName | Literal["unfinished"] | None = None
    """`unfinished`: any but `finished`."""
    search: str = ""
    """Only partitions whose name contains this."""
    sort: Literal["partition", "urgent"] = "partition"
    """`urgent`: lanes that have something to read, blocked and parked ones first, then by how long they are ready. They
    are the first `limit` of those, and neither searched nor of one state."""
    after: str = ""
    """The `next` of the page before."""
    limit: Limit = 50


class Lane(Answer):
    """A partition as one group sees it."""

    partition: str
    partition_id: str
    state: LaneStateName
    start: int
    """The first position that is still stored."""
    committed: int
    """Everything below is finished."""
    leased_to: int
    """The position up to which a lease reaches; `committed` without one."""
    head: int
    waiting: int
    failures: int
    """Failed attempts of the message that comes next."""
    error: str | None
    next_try_at: Moment | None
    lease_ends_at: Moment | None
    oldest_at: Moment | None
    dead_letters: int


class LanePage(Answer):
    queue: str
    group: str
    lanes: list[Lane]
    """By the name of their partition."""
    next: str | None
    """Where the next page begins, to be sent as `after`; null on the last."""
    complete: bool
    """False if the page ended early because very many lanes were looked at in vain; `next` goes on."""
