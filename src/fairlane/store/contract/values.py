"""Values between the broker and a store: whole batches, one value per lane touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId, id_key, uuid7_ms
from fairlane.model.lease import LeaseId
from fairlane.model.limits import COUNT_MAX, ERROR_CHARS_MAX, POP_BYTES_MAX
from fairlane.model.moment import Moment
from fairlane.model.names import check_count, check_flag, check_name
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import Segment
from fairlane.wire.dead_letters import FailedAttempt

NOT_DUE = -1
"""Position of a scheduled message that is not due yet."""
NO_ID_TIME = -1
"""In `Slice.id_times`: the id is not a UUIDv7, so it is kept in the keys table."""


class Slice(msgspec.Struct):
    """New messages of one partition, in the order they get their positions; at most one slice a partition and call."""

    partition: PartitionId
    queue_id: int
    options: QueueOptions
    """As the broker knows them; the store decides by its own where it matters (`max_size`)."""
    fragments: list[bytes]
    """Stored form of each message, see `model.segment`."""
    transaction_ids: list[str]
    keys: list[int]
    """`id_key` of each transaction id."""
    id_times: list[int]
    """Milliseconds inside each UUIDv7 transaction id, NO_ID_TIME for other ids."""
    given: list[bool]
    """Whether the id may have been pushed before: the producer gave it, or this is a repeat after an unknown outcome.
    Ids the broker just made cannot be duplicates and are not looked up."""
    traced: bool = True
    """False if it is known that no message carries a traceId: then the store does not look."""

    @property
    def has_sibling_ids(self) -> bool:
        """True if lanes of other priorities may already hold ids of this slice."""
        return self.options.ordering == "unordered" and self.options.dedup_seconds > 0 and True in self.given

    def add(self, id: str, fragment: bytes) -> None:
        """Append a message by the id that the store just made for it."""
        self.fragments.append(fragment)
        self.transaction_ids.append(id)
        self.keys.append(id_key(id))
        self.id_times.append(uuid7_ms(id) or NO_ID_TIME)
        self.given.append(False)


class Duplicate(msgspec.Struct, frozen=True):
    """The message at `index` of the slice has the key of a stored one; the broker compares the ids."""

    index: int
    position: int
    """NOT_DUE if it has none yet."""
    message_id: str
    transaction_id: str
    due_at: int | None = None
    """Of a scheduled one."""
    partition: PartitionId | None = None
    """The lane of another priority that holds it; None if it is in the slice's own partition."""


class Stored(msgspec.Struct, frozen=True):
    """All messages of the slice are durable at `first`, `first` + 1, ... `depth` and `capacity` only with a
    `max_size`."""

    first: int
    created_at: int
    depth: int | None = None
    capacity: int | None = None


class Duplicates(msgspec.Struct, frozen=True):
    """Duplicates: nothing of the slice was stored, for these of its messages may be there already."""

    found: list[Duplicate]


class Full(msgspec.Struct, frozen=True):
    """A full queue: nothing of the slice was stored, for the call's messages for its queue do not all fit below
    `capacity`."""

    depth: int
    capacity: int


class Gone(msgspec.Struct, frozen=True):
    """A partition that is gone: nothing of the slice was stored, for the partition or its queue was deleted, or its
    options changed; look again."""


class OperationsAhead(msgspec.Struct, frozen=True):
    """Operations before the slice: nothing of it was stored, for its partition has open operations, which come
    first."""


class Locked(msgspec.Struct, frozen=True):
    """A locked partition: nothing of the slice was stored, for somebody else holds its partition for too long. Others
    of the call are."""


PushResult = Stored | Duplicates | Full | Gone | OperationsAhead | Locked


def repeats(slices: Sequence[Slice]) -> list[int]:
    """Return the indexes of slices that have an id which an earlier slice of the same unordered queue has.

    Their partitions may be lanes of one partition by priority, so that one must be stored before the next is looked up.
    """
    found: list[int] = []
    known: dict[int, set[int]] = {}
    for index, part in enumerate(slices if len(slices) > 1 else ()):
        if part.has_sibling_ids:
            keys = known.setdefault(part.queue_id, set())
            if keys.isdisjoint(part.keys):
                keys.update(part.keys)
            else:
                found.append(index)
    return found


def merged(repeated: Sequence[int], firsts: Sequence[PushResult], rest: Sequence[PushResult]) -> list[PushResult]:
    """Return results in the order of their slices: `rest` are those at the indexes `repeated`."""
    results = list(firsts)
    for index, result in zip(repeated, rest, strict=True):
        results.insert(index, result)
    return results


class ScheduledSlice(msgspec.Struct):
    """Scheduled messages of one partition: `slice` as for a push, and when each is due."""

    slice: Slice
    partition_name: str
    due_at: list[int | None]
    delay_ms: list[int]
    """From now on, for those without a `due_at`."""
    repeated: bool = False
    """An earlier call with these messages may have been applied, or may be yet."""

    @property
    def partition(self) -> PartitionId:
        return self.slice.partition


class Added(msgspec.Struct, frozen=True):
    """All messages of the scheduled slice are durable, each due at its time."""

    due_at: list[int]


class Appended(msgspec.Struct, frozen=True):
    """Messages that were appended, by queue, and how many were looked at: as many as allowed when there may be more."""

    queues: dict[int, int]
    count: int


class Claim(msgspec.Struct, frozen=True):
    """One pop: up to `batch` messages in all from up to `partitions` lanes, under one lease token."""

    token: UUID
    batch: int
    partitions: int = 1
    wants_due: bool = True
    """Whether its caller wants to know when a lane is due, if there is none now."""


class PopCall(msgspec.Struct, frozen=True, kw_only=True):
    """Pops that can be answered together: same queue, group and way of taking."""

    queue_id: int
    group_id: int
    claims: Sequence[Claim]
    auto_ack: bool = False
    """Finish at delivery; no lease is kept."""
    lease_seconds: int | None = None
    """Instead of the queue's."""
    partition: PartitionId | None = None
    """Only this lane."""
    forgiving: bool = False
    """A lease that ran out charges nothing, and what it held is delivered together again."""
    bytes_max: int = POP_BYTES_MAX
    """Of the messages of each claim, about; one message is always delivered."""


class Lane(msgspec.Struct, kw_only=True):
    """A claimed batch: positions `first` to `upto` - 1 of one partition, inside `segments`."""

    partition: PartitionId
    name: str
    first: int
    upto: int
    attempts: int
    """Failed attempts of the message at `first`."""
    lease_ends_at: int
    segments: list[Segment]


class PopResult(msgspec.Struct):
    """The lanes of each claim, in the order of the claims; `next_at` is when a lane that sleeps is due, if any was
    seen and somebody waits for it."""

    lanes: list[list[Lane]]
    next_at: int | None = None
    gone: bool = False
    """The queue or the group is not there any more."""
    leases_lost: int = 0
    """Leases that were found to have run out, and charged."""
    dead: int = 0
    """Messages that were dead-lettered on the way."""


class Roused(msgspec.Struct):
    """A step of the walk over all lanes. `lanes` counts those woken, by queue; `after` is where the next step goes
    on, None at the end."""

    lanes: dict[int, int]
    after: PartitionId | None


class Nack(msgspec.Struct, frozen=True):
    """A message that must come again. In an ordered lane the cursor stops before it and the lease ends."""

    position: int
    charge: bool
    """A failed attempt; after the last one the message is dead-lettered and the lane goes on behind it."""
    error: str
    delay_ms: int | None = None
    """Sleep of the lane, or of the message in an unordered one; None: by the queue's backoff if charged, else none."""


class Dead(msgspec.Struct, frozen=True):
    """A message to dead-letter at once."""

    position: int
    error: str


Span = tuple[int, int]
"""Positions from the first to below the second."""


class LaneAck(msgspec.Struct, kw_only=True):
    """The ack of one lane: all verdicts of one call. Of an ordered lane there is at most one in a call of the store; of
    an unordered one there may be several, under different leases."""

    partition: PartitionId
    group_id: int
    token: UUID | None
    """Of the lease it is fenced by; None: an ack without a lease."""
    unordered: bool = False
    """How the lane's queue is: then each message is for itself."""
    done: list[Span] = msgspec.field(default_factory=list)
    """Finished positions, rising. Of an ordered lane the first may begin at 0: all that lies below its end."""
    nacks: list[Nack] = msgspec.field(default_factory=list)
    """Of an ordered lane one at most, the first message of the call that must come again."""
    dead_letters: list[Dead] = msgspec.field(default_factory=list)
    """Of an ordered lane their positions are among the finished ones."""
    results: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    """Kept for the acked positions; see `Groups.results`."""
    release: bool = False
    """Of an unordered lane: then give back what the lease still holds of it, without charge."""


class AckResult(msgspec.Struct, frozen=True):
    """The result of one lane's ack. `lost`: the lease is not live (any more) and nothing was applied, unless
    `repeated`: this lease was ended by an ack, nack or release, all that the ack finishes is finished, and it does
    nothing else. `before` and `after` are the cursor's positions; `gone`: no such lane; `operations_ahead`: acks of the
    lane wait as operations, so that this one must wait too, unless it is of an unordered lane.
    `locked`: somebody else holds the lane for too long, and nothing was applied; others of the call are."""

    state: Literal["ok", "lost", "gone", "operations_ahead", "locked"]
    before: int = 0
    after: int = 0
    dead: bool = False
    """The nacked message was dead-lettered."""
    released: bool = False
    repeated: bool = False
    limit: int = COUNT_MAX
    """Of an ordered lane: what lies from here on was not handed out, so that nothing was done for it."""
    finished: list[int] = []
    """Of an unordered lane: positions that were finished before, so that nothing was done for them. Of an ordered one:
    all that were finished ahead of the cursor."""
    lost: list[int] = []
    """Of an unordered lane: positions that are not this lease's (any more) and come again, or came to another."""
    died: list[int] = []
    """Of an unordered lane: positions that were dead-lettered."""


class Renewal(msgspec.Struct, frozen=True):
    lease: LeaseId
    seconds: int


class Leased(msgspec.Struct, frozen=True):
    """A leased lane: positions `first` to `upto` - 1, of which those below `committed` are done."""

    partition: PartitionId
    first: int
    upto: int
    committed: int
    ends_at: int


class StoredLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter as it is stored: `message` is the whole message in its stored form (see `model.segment`)."""

    partition: PartitionId
    group_id: int
    position: int
    queue: str
    partition_name: str
    group: str
    message: bytes
    message_created_at: int
    error: str
    attempts: int
    first_failed_at: int
    failed_at: int
    replayed_at: int | None
    replayed_as: str | None
    history: list[FailedAttempt] = []
    """Failures before the last one, oldest first; of many the latest nine."""

    @property
    def id(self) -> str:
        return f"{self.partition}-{self.group_id}-{self.position}"

    @property
    def errors(self) -> list[FailedAttempt]:
        """Of all these failures."""
        return [*self.history, FailedAttempt(at=Moment(self.failed_at), error=self.error)]


class LockedLetter(StoredLetter, frozen=True, kw_only=True):
    """A stored letter whose message is not shown, and why."""

    locked: str


class DeadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of dead letters of a queue; None means any."""

    group: str | None = None
    partition: PartitionId | None = None
    ids: list[str] | None = None
    failed_from: int | None = None
    failed_until: int | None = None
    replayed: bool | None = None
    error: str | None = None
    """Part of the last error's text."""

    def check(self) -> DeadFilter:
        """This filter, or InvalidRequest."""
        if self.group is not None:
            check_name("group", self.group)
        if self.partition is not None and type(self.partition) is not PartitionId:
            raise InvalidRequest("a partition is named by the id that a push or pop returned")
        if self.replayed is not None:
            check_flag("replayed", self.replayed)
        if self.error is not None:
            check_name("error", self.error, chars_max=ERROR_CHARS_MAX)
        if self.ids is not None:
            if not isinstance(self.ids, list):
                raise InvalidRequest(f"ids must be a list, not {type(self.ids).__name__}")
            for id in self.ids:
                check_name("a dead letter's id", id)
        for name in ("failed_from", "failed_until"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least=0, most=COUNT_MAX)
        return self
