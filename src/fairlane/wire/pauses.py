"""Pauses and lanes on the wire, and explanations why a lane does not advance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit

LaneStateName = Literal["finished", "leased", "waiting", "delayed", "failed", "blocked", "parked", "paused"]


class PauseBody(Body):
    """A target to pause: the whole queue if empty, a group, a partition for all groups, or one lane."""

    group: str | None = None
    partition: str | None = None


class ResumeBody(PauseBody):
    lanes: bool = False
    """True for all blocked and parked lanes of the group instead of the group itself."""
    skip: bool = False
    """True to dead-letter the message that blocked or parked each lane, before the lane is resumed."""


class PausedThing(Answer):
    queue: str
    group: str | None
    partition: str | None
    paused: bool


class Resumed(PausedThing):
    resumed: int
    """Number of pauses or lanes that were resumed. 0 if none was paused."""
    skipped: int = 0
    """Messages that were dead-lettered, with `skip`."""


class Pauses(Answer):
    """Pauses of a queue, with their start times."""

    queue: str
    paused_at: Moment | None
    groups: dict[str, Moment]
    """Paused groups by name."""
    partitions: dict[str, Moment]


class GlobalPausesBody(Body):
    """Pauses to set (true) or clear (false). Verbs that are left out do not change."""

    pops: bool | None = None
    pushes: bool | None = None


class GlobalPauses(Answer):
    """Verbs that are paused for all queues of all tenants."""

    pops: bool
    """Every broker of the store answers pops as if its queues were empty."""
    pushes: bool
    """Every broker of the store keeps pushes in its journal."""


class ExplainQuery(Body):
    group: str | None = None


class Explained(Answer):
    """An explanation why a lane does not advance."""

    queue: str
    partition: str
    group: str
    reason: str
    """Reason why the lane does not advance.

    One of paused, leased, empty, operations_pending, parked, blocked, windowed, delayed, backing_off, asleep, sealed,
    limited and ready.
    """
    sentence: str
    until: Moment | None
    """Time when the reason ends without intervention."""
    waiting: int
    position: int
    """Position of the first unfinished message."""
    transaction_id: str | None = None
    """TransactionId of that message, if it failed."""
    partition_id: str | None = None
    head: int
    attempts: int
    attempts_max: int
    error: str | None
    oldest_at: Moment | None
    lease_ends_at: Moment | None
    leased: int
    next_try_at: Moment | None
    """Earliest time of the next claim. In an unordered queue without new messages, the time of the first retry."""
    operations: int
    """Pushes to the partition that are not applied yet."""
    acks: int
    """Accepted acks of the lane that are not applied yet, in the store or in the journal of this broker."""
    dead_letters: int
    expired: int


class LanesQuery(ExplainQuery):
    state: LaneStateName | Literal["unfinished"] | None = None
    """State of the lanes. `unfinished` matches all but `finished`."""
    search: str = ""
    """Text that partition names must contain."""
    sort: Literal["partition", "urgent"] = "partition"
    """Sort order.

    `urgent` returns the first `limit` lanes with messages to read: blocked and parked ones, then those that are ready
    the longest. It ignores `search` and `state`.
    """
    after: str = ""
    """`next` of the previous page."""
    limit: Limit = 50


class LaneDetail(Answer):
    """A partition as one group sees it."""

    partition: str
    partition_id: str
    state: LaneStateName
    start: int
    """First position that is still stored."""
    committed: int
    """Position below which every message is finished."""
    leased_to: int
    """Position up to which a lease reaches. `committed` without one."""
    head: int
    waiting: int
    failures: int
    """Failed attempts of the next message."""
    error: str | None
    next_try_at: Moment | None
    lease_ends_at: Moment | None
    oldest_at: Moment | None
    dead_letters: int


class LanePage(Answer):
    queue: str
    group: str
    lanes: list[LaneDetail]
    """Lanes, ordered by the name of their partition."""
    next: str | None
    """Start of the next page, to send as `after`. Null on the last one."""
    complete: bool
    """False if the page ended early, after checking very many lanes that do not match. `next` continues."""

    def __iter__(self) -> Iterator[LaneDetail]:
        return iter(self.lanes)
