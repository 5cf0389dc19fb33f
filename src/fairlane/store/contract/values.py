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
from fairlane.model.names import check_count, check_flag, check_name
from fairlane.model.queue import QueueOptions
from fairlane.model.segment import Segment

NOT_DUE = -1
"""Position of a scheduled message that is not due yet."""
NO_ID_TIME = -1
"""In `Slice.id_times`: the id is not a UUIDv7, so it is kept in the keys table."""


class Slice(msgspec.Struct):
    """New messages of one partition, in the order of their positions. A call has at most one slice per partition."""

    partition: PartitionId
    queue_id: int
    options: QueueOptions
    """Options as the broker knows them. The store uses its own where it matters (`max_size`)."""
    fragments: list[bytes]
    """Stored form of each message, see `model.segment`."""
    transaction_ids: list[str]
    keys: list[int]
    """`id_key` of each transaction id."""
    id_times: list[int]
    """Milliseconds inside each UUIDv7 transaction id, NO_ID_TIME for other ids."""
    given: list[bool]
    """True for an id that may have been pushed before: it came from the producer, or this is a retry.

    Ids that the broker just generated cannot be duplicates and are not looked up.
    """
    traced: bool = True
    """False if no message has a traceId, so that the store need not check."""

    @property
    def has_sibling_ids(self) -> bool:
        """True if lanes of other priorities may already hold ids of this slice."""
        return self.options.ordering == "unordered" and self.options.dedup_seconds > 0 and True in self.given

    def add(self, id: str, fragment: bytes) -> None:
        """Append a message with the id that the store generated for it."""
        self.fragments.append(fragment)
        self.transaction_ids.append(id)
        self.keys.append(id_key(id))
        self.id_times.append(uuid7_ms(id) or NO_ID_TIME)
        self.given.append(False)


class Duplicate(msgspec.Struct, frozen=True):
    """A message of the slice, at `index`, whose key is stored already. The broker compares the ids."""

    index: int
    position: int
    """Position of the stored message. NOT_DUE if it has none yet."""
    message_id: str
    transaction_id: str
    due_at: int | None = None
    """Delivery time of a scheduled message."""
    partition: PartitionId | None = None
    """Lane of another priority that holds it. None if it is in the slice's own partition."""


class Stored(msgspec.Struct, frozen=True):
    """All messages of the slice are durable at `first`, `first` + 1, and so on.

    `depth` and `capacity` are set only with a `max_size`.
    """

    first: int
    created_at: int
    depth: int | None = None
    capacity: int | None = None


class Duplicates(msgspec.Struct, frozen=True):
    """Nothing was stored, because these messages of the slice may be stored already."""

    found: list[Duplicate]


class Full(msgspec.Struct, frozen=True):
    """Nothing was stored, because the messages of this call for the queue do not all fit below `capacity`."""

    depth: int
    capacity: int


class Gone(msgspec.Struct, frozen=True):
    """Nothing was stored, because the partition or its queue was deleted, or its options changed.

    The broker must look it up again.
    """


class OperationsAhead(msgspec.Struct, frozen=True):
    """Nothing was stored, because the partition has open operations, which come first."""


class PartitionLocked(msgspec.Struct, frozen=True):
    """Nothing was stored, because the partition is locked for too long. Other slices of the call are."""


class Added(msgspec.Struct, frozen=True):
    """All messages of the scheduled slice are durable, each due at its time."""

    due_at: list[int]


PushResult = Stored | Added | Duplicates | Full | Gone | OperationsAhead | PartitionLocked


def repeats(slices: Sequence[Slice]) -> list[int]:
    """Return the indexes of slices with an id that an earlier slice of the same unordered queue has.

    Their partitions may be lanes of one partition by priority, so the first must be stored before the next is looked
    up.
    """
    found: list[int] = []
    known: dict[int, set[int]] = {}
    for index, part in enumerate(slices):
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
    """Scheduled messages of one partition: a slice as for a push, and the time of each message."""

    slice: Slice
    partition_name: str
    due_at: list[int | None]
    delay_ms: list[int]
    """Delay from now, for messages without a `due_at`."""
    repeated: bool = False
    """True if an earlier call with these messages may have been or may still be applied."""

    @property
    def partition(self) -> PartitionId:
        return self.slice.partition


class Appended(msgspec.Struct, frozen=True):
    """Numbers of appended messages by queue, and of checked ones. If it is the limit, there may be more."""

    queues: dict[int, int]
    count: int


class PopClaim(msgspec.Struct, frozen=True):
    """One pop: up to `batch` messages in all from up to `partitions` lanes, under one lease token."""

    token: UUID
    batch: int
    partitions: int = 1
    wants_due: bool = True
    """True if the caller wants the time when the next lane is due if no lane is ready."""


class PopCall(msgspec.Struct, frozen=True, kw_only=True):
    """Pops that can be answered together: same queue, group and options."""

    queue_id: int
    group_id: int
    claims: Sequence[PopClaim]
    auto_ack: bool = False
    """True to finish messages at delivery, without a lease."""
    lease_seconds: int | None = None
    """Length of the lease, instead of the queue's."""
    partition: PartitionId | None = None
    """Lane to read. None for any."""
    forgiving: bool = False
    """True to count no failed attempt for an expired lease, and to deliver its messages together again."""
    bytes_max: int = POP_BYTES_MAX
    """Approximate size limit of the messages of each claim. One message is always delivered."""


class ClaimedLane(msgspec.Struct, kw_only=True):
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
    """The lanes of each claim, in the order of the claims.

    `next_at` is the time when a sleeping lane is due, if one was seen and a caller waits for it. `expired` messages
    were too old: they were dropped, or are among the `dead`.
    """

    lanes: list[list[ClaimedLane]]
    next_at: int | None = None
    gone: bool = False
    """True if the queue or the group no longer exists."""
    leases_lost: int = 0
    """Expired leases that were found and counted as failed attempts."""
    expired: int = 0
    dead: int = 0


class Nack(msgspec.Struct, frozen=True):
    """A message that must be delivered again. In an ordered lane the cursor stops before it and the lease ends."""

    position: int
    charge: bool
    """True to count a failed attempt. After the last one the message is dead-lettered."""
    error: str
    delay_ms: int | None = None
    """Delay of the lane, or of the message in an unordered one. None for the backoff if an attempt is counted, else 0.
    """
    traceback: str | None = None


class ToDeadLetter(msgspec.Struct, frozen=True):
    """A message to dead-letter at once."""

    position: int
    error: str
    traceback: str | None = None


Span = tuple[int, int]
"""Positions from the first to below the second."""


class LaneAck(msgspec.Struct, kw_only=True):
    """All verdicts of one call on one lane.

    A call has at most one for an ordered lane. For an unordered lane there may be several, with different leases.
    """

    partition: PartitionId
    group_id: int
    token: UUID | None
    """Token of the lease. None for an ack without a lease."""
    unordered: bool = False
    """True if the lane is unordered, so that each message is finished on its own."""
    done: list[Span] = msgspec.field(default_factory=list)
    """Finished positions, ascending. In an ordered lane the first may begin at 0, for everything below its end."""
    nacks: list[Nack] = msgspec.field(default_factory=list)
    """Messages to deliver again. In an ordered lane at most one: the first of the call."""
    dead_letters: list[ToDeadLetter] = msgspec.field(default_factory=list)
    """Messages to dead-letter. In an ordered lane their positions are among the finished ones."""
    results: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    """Results of the acked positions; see `Groups.results`."""
    release: bool = False
    """True to release the rest of the lease in an unordered lane afterwards, without counting an attempt."""
    cumulative: bool = False
    """True if the first span begins at 0 for everything below its end, and only its last message was named."""


class AckResult(msgspec.Struct, frozen=True):
    """The result of one lane's ack. `before` and `after` are the positions of the cursor.

    `lost`: the lease is not live, and nothing was applied. `repeated`: an ack, nack or release ended this lease before,
    and everything that the ack finishes is finished. `gone`: the lane does not exist. `operations_ahead`: acks of the
    ordered lane wait as operations, so this one must wait, too. `locked`: the lane is locked for too long, and nothing
    was applied, unlike other acks of the call.
    """

    state: Literal["ok", "lost", "gone", "operations_ahead", "locked"]
    before: int = 0
    after: int = 0
    dead: bool = False
    """True if the nacked message was dead-lettered."""
    released: bool = False
    repeated: bool = False
    limit: int = COUNT_MAX
    """In an ordered lane, the first position that was not delivered. It and later positions were ignored."""
    finished: list[int] = []
    """Positions that were finished before.

    In an unordered lane they were ignored. In an ordered one these are all that were finished ahead of the cursor.
    """
    lost: list[int] = []
    """Positions of an unordered lane that this lease does not hold. They are delivered again."""
    died: list[int] = []
    """Positions of an unordered lane that were dead-lettered."""
    cancelled: list[int] = []
    """Positions that the ack names and that were cancelled. Their verdicts were ignored."""


class Renewal(msgspec.Struct, frozen=True):
    lease: LeaseId
    seconds: int


class Leased(msgspec.Struct, frozen=True):
    """A leased lane with the positions `first` to `upto` - 1. Those below `committed` are done."""

    partition: PartitionId
    first: int
    upto: int
    committed: int
    ends_at: int


class DeadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of dead letters of a queue. None matches any."""

    group: str | None = None
    partition: PartitionId | None = None
    ids: list[str] | None = None
    failed_from: int | None = None
    failed_until: int | None = None
    replayed: bool | None = None
    error: str | None = None
    """Part of the text of the last error."""

    def check(self) -> DeadFilter:
        """Return this filter. Raises InvalidRequest if it is invalid."""
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
