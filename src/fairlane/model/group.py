"""Consumer groups: where one starts, where it stands, where it may be sent."""

from __future__ import annotations

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
    """The subscription of a group, decided once at its first pop: all history, only what comes, or from a time.

    A group that conflates gets of each partition only the newest message; older ones are passed over. A look is a
    person's: its group takes no place in a limited queue that consumers read, until a consumer pops for it."""

    mode: Mode = "all"
    from_at: When | None = None
    """A `Moment` once made, whatever was given."""
    conflation: bool = False
    look: bool = False

    def __post_init__(self) -> None:
        if self.from_at is not None:
            msgspec.structs.force_setattr(self, "from_at", micros_of("from_at", self.from_at))

    @property
    def start(self) -> int | None:
        """`from_at` in microseconds since 1970."""
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
    """Some partitions still wait for this group's cursor."""


class Seek(msgspec.Struct, frozen=True):
    """A seek: where to send a cursor, `beginning`, `end`, `time` (first message at or after `at`) or `position`."""

    to: Literal["beginning", "end", "time", "position"]
    at: When = 0
    """A position, or a time: a `Moment` once made, whatever was given."""

    def __post_init__(self) -> None:
        if self.to == "time":
            msgspec.structs.force_setattr(self, "at", micros_of("the time of a seek", self.at))

    @property
    def target(self) -> int:
        """`at` as a number."""
        return cast(int, self.at)

    def check(self) -> Seek:
        if self.to not in ("beginning", "end", "time", "position"):
            raise InvalidRequest(f"seek to beginning, end, time or position, not {self.to!r:.40}")
        check_count("the target of a seek", self.at, least=0, most=COUNT_MAX)
        return self


class GroupResult(msgspec.Struct, frozen=True):
    """The result that a group's ack of a message carried, as JSON."""

    group: str
    result: bytes
    created_at: int


class LaneState(msgspec.Struct, frozen=True, kw_only=True):
    """One partition as one group sees it. Waiting = head - max(committed, leased_until) - skipped - in_flight."""

    partition: PartitionId
    name: str
    start: int
    head: int
    committed: int
    """Everything below is finished: acked, dead or skipped."""
    leased_until: int | None
    """The position up to which a live lease reaches, None without one."""
    lease_ends_at: int | None
    ready_at: int | None
    """When the lane may be claimed next, as far as is known before a pop looks; None while there is nothing to read,
    and while it is stopped. Of an unordered queue with nothing new: when the first message may come again."""
    attempts: int
    """Failed attempts of the message at `committed`."""
    error: str | None
    stopped: Stopped | None = None
    """`paused`: its partition is; `blocked`: by a message whose attempts are used up; `parked`: set aside with such a
    message, or by an operator."""
    dead: int
    """Messages of this lane that this group gave up on, ever."""
    last_at: int = 0
    """When the newest message of the partition came."""
    expired: int = 0
    """Messages of this lane that were dropped for this group because they were too old, ever."""
    in_flight: int = 0
    """Of an unordered queue: messages in consumers' hands now."""
    skipped: int = 0
    """Messages above `committed` and a live lease that no pop delivers: deleted, dead-lettered by hand, or, of an
    unordered queue, finished ahead of others."""
    operations: int = 0
    """Pushes to the partition that were accepted and wait to be applied."""
    oldest_at: int | None = None
    """When the message at `committed` came; None while there is nothing to read."""
    retry_limit: int | None = None
    """Of that message, if it has failed and has one of its own."""
