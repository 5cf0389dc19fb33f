"""Consumer groups: their subscription, their state in each partition, and seeks."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, cast

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId
from fairlane.model.limits import COUNT_MAX
from fairlane.model.moment import When, micros_of
from fairlane.model.names import check_count, check_flag

Mode = Literal["all", "new", "time"]
Stopped = Literal["paused", "blocked", "parked"]


class Subscription(msgspec.Struct, frozen=True):
    """The start of a group, decided at its first pop: all history, only new messages, or from a time.

    A group that conflates gets only the newest message of each partition and skips older ones. A group that only looks,
    for a person, takes no place in a limited queue that consumers read, until a consumer pops for it.
    """

    mode: Mode = "all"
    from_at: When | None = None
    """Time to start at, as a `Moment` after construction."""
    conflation: bool = False
    look: bool = False

    def __post_init__(self) -> None:
        if self.from_at is not None:
            msgspec.structs.force_setattr(self, "from_at", micros_of("from_at", self.from_at))

    @property
    def start(self) -> int | None:
        """Return `from_at` in microseconds since 1970. None if it is not set."""
        return cast("int | None", self.from_at)

    def check(self) -> Subscription:
        if self.mode not in ("all", "new", "time"):
            raise InvalidRequest(f"subscription mode must be all, new or time, not {self.mode!r:.40}")
        if (self.mode == "time") != (self.from_at is not None):
            raise InvalidRequest("subscription mode `time` needs from_at, and no other mode takes it")
        check_flag("conflation", self.conflation)
        check_flag("look", self.look)
        return self


class Group(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    queue_id: int
    name: str
    subscription: Subscription
    created_at: int
    seeding: bool
    """True while some partitions lack a cursor of this group."""


class Seek(msgspec.Struct, frozen=True):
    """Target of a seek: `beginning`, `end`, `time` (first message at or after `at`) or `position`."""

    to: Literal["beginning", "end", "time", "position"]
    at: When = 0
    """A position, or a time, which is a `Moment` after construction."""

    def __post_init__(self) -> None:
        if self.to == "time":
            msgspec.structs.force_setattr(self, "at", micros_of("the time of a seek", self.at))

    @property
    def target(self) -> int:
        """Return `at` as a number."""
        return cast(int, self.at)

    @classmethod
    def of(cls, target: SeekTarget) -> Seek:
        """Return the checked seek for a target."""
        if isinstance(target, Seek):
            return target.check()
        if isinstance(target, str) and target in ("beginning", "end"):
            return cls("beginning" if target == "beginning" else "end")
        if isinstance(target, datetime | str):
            return cls("time", target).check()
        raise InvalidRequest(f'seek to "beginning", "end", a time or a Seek, not {type(target).__name__}')

    def check(self) -> Seek:
        if self.to not in ("beginning", "end", "time", "position"):
            raise InvalidRequest(f"seek to beginning, end, time or position, not {self.to!r:.40}")
        check_count("the target of a seek", self.at, least=0, most=COUNT_MAX)
        return self


SeekTarget = Seek | datetime | str
"""A seek, or its short form: "beginning", "end", or a time as a datetime or a text."""


class GroupResult(msgspec.Struct, frozen=True):
    """Result of a group's ack of a message, as JSON."""

    group: str
    result: bytes
    created_at: int


class LaneState(msgspec.Struct, frozen=True, kw_only=True):
    """A partition as one consumer group sees it.

    Waiting messages = head - max(committed, leased_until) - skipped - in_flight.
    """

    partition: PartitionId
    name: str
    start: int
    head: int
    committed: int
    """Position below which every message is finished: acked, dead-lettered or skipped."""
    leased_until: int | None
    """Position up to which a live lease reaches. None without one."""
    lease_ends_at: int | None
    ready_at: int | None
    """Earliest time of the next claim, as far as it is known. None if there is nothing to read or the lane is stopped.

    In an unordered queue without new messages, the time of the first retry.
    """
    attempts: int
    """Failed attempts of the message at `committed`."""
    error: str | None
    stopped: Stopped | None = None
    """Reason why the lane is stopped. None if it is not.

    `paused`: its partition is paused. `blocked`: a message has used up its attempts. `parked`: set aside with a message
    like that, or by an operator.
    """
    dead: int
    """Messages of this lane that this group has dead-lettered, ever."""
    last_at: int = 0
    """Time of the newest message in the partition."""
    expired: int = 0
    """Messages of this lane that expired for this group, ever."""
    in_flight: int = 0
    """Messages that consumers of an unordered queue hold now."""
    skipped: int = 0
    """Messages above `committed` and a live lease that no pop delivers.

    They were deleted, dead-lettered by hand or, in an unordered queue, finished out of order.
    """
    operations: int = 0
    """Accepted pushes to the partition that are not applied yet."""
    oldest_at: int | None = None
    """Time of the message at `committed`. None if there is nothing to read."""
    retry_limit: int | None = None
    """Retry limit of the message at `committed`, if it has failed and has its own."""
