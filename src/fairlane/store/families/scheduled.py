"""Scheduled messages, which are stored outside the log until they are due.

Until then they have no position, block no other message, and do not count towards the queue's depth. `created_at` is
the time when they are appended.

The messages that one call schedules in one partition are a scheduled segment. They are sent and stored together, in the
order in which they are due.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, Generic, TypeVar
from uuid import UUID

import msgspec

from fairlane.model.ids import PartitionId, id_facts, id_key, uuid7
from fairlane.model.limits import SEGMENT_BYTES_MAX
from fairlane.model.moment import Moment
from fairlane.model.queue import Queue, QueueOptions
from fairlane.model.segment import encode, ids_of
from fairlane.store.contract.values import (
    NO_ID_TIME,
    NOT_DUE,
    Added,
    Appended,
    Duplicate,
    Duplicates,
    Full,
    Gone,
    OperationsAhead,
    PartitionLocked,
    PushResult,
    ScheduledSlice,
    Slice,
    Stored,
)
from fairlane.store.families.dialect import Dialect
from fairlane.store.families.query import Family, Value
from fairlane.wire.scheduled import ScheduledMessage

MESSAGES_MAX: Final = 100
"""Messages in one segment. Each append reads the due times of the whole segment."""
APPEND_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes appended in one step, which bounds the memory used."""
ROUNDS_MAX: Final = 100
"""Attempts to append the due messages. Each settles at least some slices, unless the queue keeps changing."""
Id = TypeVar("Id")


class ScheduledMessages(Family, ABC):
    @abstractmethod
    async def add(self, parts: Sequence[ScheduledSlice]) -> list[Added | Duplicates | Gone]:
        """Store each part completely or not at all. Returns one result each, in order.

        A call has at most one part per partition. A part is Duplicates if one of its given ids is already scheduled in
        the partition, or was stored there within `dedup_seconds`. On Gone, the caller looks the partition up again.
        """

    @abstractmethod
    async def append_due(self, *, limit: int = 1000) -> Appended:
        """Append up to `limit` due messages, oldest first, in atomic steps. Concurrent calls append each message once.

        Messages whose id was stored meanwhile, or whose queue was deleted, are dropped. Those that do not fit into a
        full queue wait another second.
        """

    async def cancel(self, partition: PartitionId, transaction_id: str) -> bool:
        """Delete a scheduled message. Returns False if it is not scheduled."""
        return await self._change(partition, transaction_id, move=False) is not None

    async def reschedule(
        self, partition: PartitionId, transaction_id: str, *, due_at: int | None = None, delay_ms: int = 0
    ) -> int | None:
        """Reschedule a message for a time, or for a delay from now.

        Returns the new time, or None if the message is not scheduled.
        """
        return await self._change(partition, transaction_id, move=True, due_at=due_at, delay_ms=delay_ms)

    async def _change(
        self, partition: PartitionId, transaction_id: str, *, move: bool, due_at: int | None = None, delay_ms: int = 0
    ) -> int | None:
        writes = self._runner.writes
        return await change(writes, partition, transaction_id, move=move, due_at=due_at, delay_ms=delay_ms)

    async def page(
        self, queue: Queue, *, after: tuple[int, str] | None = None, limit: int = 100
    ) -> list[ScheduledMessage]:
        """Return scheduled messages, next due first. `after` is (deliver_at, id) of the last one seen."""
        at, id = after or (-1, "")
        page: dict[str, Value] = {"queue_id": queue.id, "after_at": at, "after_id": id, "limit": limit}
        found = []
        for partition_id, name, head, due_at in await self._runner.read("scheduled.page", **page):
            message_id, transaction_id = ids_of(head)
            found.append(
                ScheduledMessage(
                    id=message_id,
                    transaction_id=transaction_id,
                    queue=queue.name,
                    partition=name,
                    partition_id=str(PartitionId.of(partition_id)),
                    deliver_at=Moment(due_at),
                )
            )
        return found

    async def next_in(self) -> int | None:
        """Return the microseconds until the next message of any queue is due, negative if it is late.

        Returns None if no message is scheduled.
        """
        [[next_at, now]] = await self._runner.read("scheduled.next_at")
        return None if next_at is None else next_at - now


async def change(
    dialect: Dialect,
    partition: PartitionId,
    transaction_id: str,
    *,
    move: bool,
    due_at: int | None = None,
    delay_ms: int = 0,
) -> int | None:
    """Reschedule a message, or cancel it. Returns its time, or None if it is not scheduled."""
    return await dialect.change_scheduled(
        *identity(partition, transaction_id),
        UUID(uuid7()),
        move=move,
        due_at=due_at,
        delay_ms=delay_ms,
    )


def identity(partition: PartitionId, transaction_id: str) -> tuple[int, bytes, list[int], int]:
    """Return the values by which a dialect finds a scheduled message."""
    key, id_ms = id_facts(transaction_id)
    keys = [key, id_key(transaction_id, salt=1)]
    return partition.id, encode(transaction_id), keys, NO_ID_TIME if id_ms is None else id_ms


class ScheduledSegment(msgspec.Struct):
    """A scheduled segment: messages of a slice that are stored together. `items` are their indexes in the slice."""

    relative: bool
    """True if `due` is a delay from now instead of a time."""
    items: list[int]
    due: list[int]


def segments_of(part: ScheduledSlice) -> Iterator[ScheduledSegment]:
    """Split a part into segments, in the order in which messages are due. Messages of one time keep their order.

    Messages with a time and messages with a delay get separate segments, because only the store can compare them.
    """
    due_at = part.due_at
    at_time = [index for index, at in enumerate(due_at) if at is not None]
    yield from _cut(part, False, at_time, [at for at in due_at if at is not None])
    if len(at_time) < len(due_at):
        delayed = [index for index, at in enumerate(due_at) if at is None]
        yield from _cut(part, True, delayed, [part.delay_ms[index] * 1000 for index in delayed])


def repeated_ids(part: Slice) -> list[Duplicate]:
    """Return the messages whose given id an earlier message of the slice has."""
    if True not in part.given or len(set(part.keys)) == len(part.keys):
        return []
    seen: dict[int, int] = {}
    found = []
    for index, key in enumerate(part.keys):
        if (twin := seen.setdefault(key, index)) != index:
            found.append(Duplicate(index, NOT_DUE, *ids_of(part.fragments[twin])))
    return found


def _cut(part: ScheduledSlice, relative: bool, items: list[int], due: list[int]) -> Iterator[ScheduledSegment]:
    order = sorted(range(len(items)), key=due.__getitem__)
    fragments = part.slice.fragments
    if 0 < len(items) <= MESSAGES_MAX and sum(map(len, fragments)) <= SEGMENT_BYTES_MAX:  # mostly
        yield ScheduledSegment(relative, [items[one] for one in order], [due[one] for one in order])
        return
    some: list[int] = []
    size = 0
    for number in order:
        length = len(fragments[items[number]])
        if some and (len(some) == MESSAGES_MAX or size + length > SEGMENT_BYTES_MAX):
            yield ScheduledSegment(relative, [items[one] for one in some], [due[one] for one in some])
            some, size = [], 0
        some.append(number)
        size += length
    if some:
        yield ScheduledSegment(relative, [items[one] for one in some], [due[one] for one in some])


class OpenedSegment(msgspec.Struct, Generic[Id]):
    """A segment with due messages."""

    id: Id
    partition_id: int
    queue_id: int
    partition_name: str
    n: int
    taken: int
    due: list[int]
    """Due times of the messages to append, after the `taken` ones."""
    next_due: int | None
    """Time when the first remaining message is due. None if none remains."""
    keys: list[int]
    ends: list[int]
    body: bytes

    def messages(self) -> Iterator[Due]:
        low = 0
        for offset, high in enumerate(self.ends):
            fragment = self.body[low:high]
            message_id, transaction_id = ids_of(fragment)
            id_ms = id_facts(transaction_id)[1]
            yield Due(
                self.due[offset],
                message_id,
                self.id,
                self.taken + offset,
                self.partition_id,
                self.queue_id,
                self.partition_name,
                self.keys[offset],
                NO_ID_TIME if id_ms is None else id_ms,
                transaction_id != message_id,
                transaction_id,
                fragment,
            )
            low = high


def oldest(opened: Sequence[OpenedSegment[Id]], cut: int | None) -> list[Due]:
    """Return the messages of opened segments in due order, up to `cut`, where a segment begins that was not opened."""
    messages = [message for segment in opened for message in segment.messages() if cut is None or message.due_at <= cut]
    return sorted(messages, key=lambda one: (one.due_at, one.message_id))


class SegmentProgress(msgspec.Struct, Generic[Id]):
    """Progress of a segment after some of its messages were appended.

    `gone` counts the messages that are done, starting with the first one not yet taken. `next_at` is when to read the
    segment again, None after a pause. It is unused if the segment is finished.
    """

    segment: OpenedSegment[Id]
    gone: int
    next_at: int | None
    holes: list[int]
    """Indexes of further messages that are done, behind one that is not."""
    keys: list[int]
    """Keys of all messages that are done."""

    @property
    def is_finished(self) -> bool:
        return self.segment.taken + self.gone + len(self.holes) == self.segment.n


def progress_of(
    opened: Sequence[OpenedSegment[Id]], done: Sequence[Due], postponed: Sequence[Due]
) -> list[SegmentProgress[Id]]:
    gone: dict[object, set[int]] = {}
    for message in done:
        gone.setdefault(message.segment, set()).add(message.index)
    paused = {message.segment for message in postponed}
    found = []
    for segment in opened:
        indexes = gone.get(segment.id, set())
        many = 0
        while segment.taken + many in indexes:
            many += 1
        holes = sorted(index for index in indexes if index >= segment.taken + many)
        next_at = None if segment.id in paused else ([*segment.due, segment.next_due])[many]
        keys = [segment.keys[index - segment.taken] for index in sorted(indexes)]
        found.append(SegmentProgress(segment, many, next_at, holes, keys))
    return found


def ends_of(fragments: Sequence[bytes]) -> list[int]:
    return list(accumulate(map(len, fragments)))


class Due(msgspec.Struct):
    """A due message. `index` is its place in the segment."""

    due_at: int
    message_id: str
    segment: object
    index: int
    partition_id: int
    queue_id: int
    partition_name: str
    key: int
    id_ms: int
    given: bool
    transaction_id: str
    message: bytes


class Appending:
    """Due messages on their way into the log, in due order. Builds slices from them and handles refused pushes."""

    def __init__(self, rows: Sequence[Due]) -> None:
        self.left: dict[int, list[Due]] = defaultdict(list)
        """Messages not settled yet, by partition."""
        for row in rows:
            self.left[row.partition_id].append(row)
        self.done: list[Due] = []
        """Messages that were appended, are duplicates, or have lost their queue."""
        self.postponed: list[Due] = []
        """Messages whose queue is full, whose partition is locked, or that must wait for operations."""
        self.appended: dict[int, int] = defaultdict(int)
        """Number of messages appended, by queue."""

    def slices(self, options: Mapping[int, QueueOptions]) -> list[Slice]:
        """Build a slice for each partition with messages left. Messages of deleted queues are done."""
        for partition_id, rows in list(self.left.items()):
            if rows[0].queue_id not in options:
                self.done += self.left.pop(partition_id)
        return [
            Slice(
                partition=PartitionId.of(partition_id),
                queue_id=rows[0].queue_id,
                options=options[rows[0].queue_id],
                fragments=[row.message for row in rows],
                transaction_ids=[row.transaction_id for row in rows],
                keys=[row.key for row in rows],
                id_times=[row.id_ms for row in rows],
                given=[bool(row.given) for row in rows],
            )
            for partition_id, rows in sorted(self.left.items())
        ]

    def apply(self, slices: Sequence[Slice], results: Sequence[PushResult]) -> list[tuple[int, str]]:
        """Settle the results of a push. Returns queue and partition name of slices whose partition is gone."""
        gone: list[tuple[int, str]] = []
        full: dict[int, tuple[Full, list[int]]] = {}
        for part, result in zip(slices, results, strict=True):
            id = part.partition.id
            if isinstance(result, Stored):
                self.appended[part.queue_id] += len(part.fragments)
                self.done += self.left.pop(id)
            elif isinstance(result, Duplicates):
                self._drop_known(id, result)
            elif isinstance(result, Full):
                full.setdefault(part.queue_id, (result, []))[1].append(id)
            elif isinstance(result, OperationsAhead | PartitionLocked):
                self.postponed += self.left.pop(id)
            else:
                gone.append((part.queue_id, self.left[id][0].partition_name))
        for refusal, ids in full.values():
            self._keep_what_fits(refusal, ids)
        return gone

    def move(self, name: str, queue_id: int, partition_id: int) -> None:
        """Use the new id of a partition that was deleted and created again."""
        for id, rows in list(self.left.items()):
            if id != partition_id and (rows[0].queue_id, rows[0].partition_name) == (queue_id, name):
                self.left[partition_id] += self.left.pop(id)

    def _drop_known(self, partition_id: int, result: Duplicates) -> None:
        rows = self.left.pop(partition_id)
        same = {one.index for one in result.found if one.transaction_id == rows[one.index].transaction_id}
        for one in result.found:
            if one.index not in same:
                rows[one.index].key = id_key(rows[one.index].transaction_id, salt=1)
        self.done += [rows[index] for index in same]
        if left := [row for index, row in enumerate(rows) if index not in same]:
            self.left[partition_id] = left

    def _keep_what_fits(self, refusal: Full, ids: list[int]) -> None:
        """Keep the first messages of a full queue that fit, and postpone the others."""
        rows = sorted((row for id in ids for row in self.left.pop(id)), key=lambda row: (row.due_at, row.message_id))
        room = max(0, refusal.capacity - refusal.depth)
        self.postponed += rows[room:]
        for row in rows[:room]:
            self.left[row.partition_id].append(row)
