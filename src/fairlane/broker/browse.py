"""Browsing: pages of messages, newest first, and one with all that is known of it.

The order is that of (created_at, partition, position), which a page can be sought by: ids would need every message of
one moment to be read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from heapq import nlargest
from typing import Any, Literal, NamedTuple

import msgspec

from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.ids import PartitionId
from fairlane.model.message import Message
from fairlane.model.names import QUEUE_MODE
from fairlane.model.outcome import DeadLetter
from fairlane.model.queue import Queue
from fairlane.model.segment import messages
from fairlane.model.stats import Standing
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import MessageHead, Upto

Status = Literal["pending", "processing", "completed", "dead_letter"]
PARTITIONS_AT_ONCE = 20
HEADS_AT_ONCE_MAX = 50_000
"""Each look at the active partitions passes over all of them: few are read at first, for most pages need few, then
more, as long as what comes of them fits into memory with ease."""
SCAN_MAX = 10_000
"""Messages looked at for one page whose filter only the message itself can answer; the page then ends early."""
_LIST_POSITION = re.compile(r"(\d{1,18})\.(\d{1,9}-\d{1,18})\.(\d{1,18})", re.ASCII)


class ListPosition(NamedTuple):
    """The position of a message in the order of a listing."""

    created_at: int
    partition: PartitionId
    position: int

    def __str__(self) -> str:
        return f"{self.created_at}.{self.partition}.{self.position}"

    @classmethod
    def parse(cls, text: str) -> ListPosition:
        match = _LIST_POSITION.fullmatch(text)
        if match is None:
            raise InvalidRequest(f"{text!r:.80} is not where a page ended; use the `next` of the page before")
        return cls(int(match[1]), PartitionId.parse(match[2]), int(match[3]))


class MessageFilter(msgspec.Struct, frozen=True, kw_only=True):
    queues: list[Queue]
    partition: str | None = None
    since: int = 0
    until: int = 2**53
    """Both included."""
    status: Status | None = None
    transaction_id: str | None = None
    trace_id: str | None = None

    def matches(self, seen: Seen) -> bool:
        return (
            (self.status is None or seen.status == self.status)
            and (self.transaction_id is None or seen.head.transaction_id == self.transaction_id)
            and (self.trace_id is None or (seen.head.trace_id or "").lower() == self.trace_id.lower())
        )


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    head: MessageHead
    queue: Queue
    partition: str
    status: Status
    standings: list[Standing]


class Page(msgspec.Struct):
    """A page: `next` is where the next one begins; None when there is none."""

    messages: list[Seen]
    next: ListPosition | None


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    message: Message[Any]
    queue: Queue
    partition: str
    partition_id: PartitionId
    status: Status
    standings: list[Standing]
    letters: list[DeadLetter]
    attempts: int
    error: str | None


class Browser:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(self, where: MessageFilter, *, limit: int, before: ListPosition | None = None) -> Page:
        if where.transaction_id is not None or where.trace_id is not None:
            return await self._looked_up(where, limit, before)
        found: list[Seen] = []
        scanned = 0
        while scanned < SCAN_MAX:
            some = await self._newest(where, max(limit, 20), before)
            if not some:
                return Page(found, None)
            for seen in await self._with_status(where, some):
                before = _list_position(seen.head)
                if where.matches(seen):
                    found.append(seen)
                    if len(found) == limit:
                        return Page(found, before)
            scanned += len(some)
        return Page(found, before)

    async def _looked_up(self, where: MessageFilter, limit: int, before: ListPosition | None) -> Page:
        """Messages that are found by an id they carry: nothing else is read."""
        ids = [queue.id for queue in where.queues]
        if where.transaction_id is not None:
            candidates = await self._store.browse.with_id(ids, where.transaction_id)
        else:
            candidates = await self._store.browse.traced(ids, where.trace_id or "", limit=SCAN_MAX)
        partitions = {
            (one.partition, one.position): (one.queue_id, one.name)
            for one in candidates
            if where.partition in (None, one.name)
        }
        bounds = [Upto(partition, where.until + 1, position + 1) for partition, position in partitions]
        heads = await self._store.browse.back(bounds, since=where.since, limit=1) if bounds else []
        some = {
            (head.partition, head.position): head for head in heads if (head.partition, head.position) in partitions
        }
        some = {at: head for at, head in some.items() if before is None or _list_position(head) < before}
        ordered = sorted(some.values(), key=_list_position, reverse=True)
        looked_at = await self._with_status(
            where, [(head, partitions[head.partition, head.position]) for head in ordered]
        )
        found = [seen for seen in looked_at if where.matches(seen)]
        more = len(found) > limit
        return Page(found[:limit], _list_position(found[limit - 1].head) if more else None)

    async def _newest(
        self, where: MessageFilter, count: int, before: ListPosition | None
    ) -> list[tuple[MessageHead, tuple[int, str]]]:
        """The newest messages behind `before`, each with queue and name of its partition. Partitions are asked latest
        write first, until one was written to before the last message found."""
        ids = [queue.id for queue in where.queues]
        best: list[MessageHead] = []
        partitions: dict[PartitionId, tuple[int, str]] = {}
        last: tuple[int, PartitionId] | None = None
        at_once = PARTITIONS_AT_ONCE
        while ids:
            some = await self._store.browse.active(
                ids, name=where.partition, since=where.since, before=last, limit=at_once
            )
            if not some or (len(best) == count and (some[0].last_at, some[0].id) < _list_position(best[-1])[:2]):
                break
            at_once = min(2 * at_once, max(PARTITIONS_AT_ONCE, HEADS_AT_ONCE_MAX // count))
            partitions |= {each.id: (each.queue_id, each.name) for each in some}
            bounds = [_bound(each.id, where.until, before) for each in some]
            heads = await self._store.browse.back(bounds, since=where.since, limit=count)
            best = nlargest(count, [*best, *heads], key=_list_position)
            last = (some[-1].last_at, some[-1].id)
        return [(head, partitions[head.partition]) for head in best]

    async def _with_status(self, where: MessageFilter, some: list[tuple[MessageHead, tuple[int, str]]]) -> list[Seen]:
        queues = {queue.id: queue for queue in where.queues}
        partitions = list({head.partition for head, _ in some})
        standings: dict[PartitionId, list[Standing]] = defaultdict(list)
        for standing in await self._store.statistics.standings(partitions):
            standings[standing.partition].append(standing)
        dead = await self._store.statistics.dead_among([(head.partition, head.position) for head, _ in some])
        return [
            Seen(
                head=head,
                queue=queues[queue_id],
                partition=name,
                status=status_of(head.position, standings[head.partition], (head.partition, head.position) in dead),
                standings=standings[head.partition],
            )
            for head, (queue_id, name) in some
        ]

    async def message(self, tenant: str, partition: PartitionId, transaction_id: str) -> Detail:
        """One message, or NotFound."""
        found = await self._store.queues.partition(partition)
        position = await self._store.messages.find(partition, transaction_id) if found else None
        queues = {queue.id: queue for queue in await self._store.queues.list(tenant)} if found else {}
        if found is None or position is None or found.queue_id not in queues:
            raise NotFound("Message not found")
        segments = await self._store.messages.read(partition, position, position + 1)
        message = next(messages(segments, position, position + 1), None)
        if message is None:
            raise NotFound("Message not found")
        queue = queues[found.queue_id]
        standings = await self._store.statistics.standings([partition])
        letters, attempts, error = await self._failures(queue, partition, position)
        return Detail(
            message=message,
            queue=queue,
            partition=found.name,
            partition_id=partition,
            status=status_of(position, standings, bool(letters)),
            standings=standings,
            letters=letters,
            attempts=attempts,
            error=error,
        )

    async def _failures(
        self, queue: Queue, partition: PartitionId, position: int
    ) -> tuple[list[DeadLetter], int, str | None]:
        """Its dead letters, and the failed attempts and last error of the group that had most."""
        letters, attempts, error = [], 0, None
        for group in await self._store.groups.list(queue.id):
            letter = await self._store.dead_letters.get(queue.id, f"{partition}-{group.id}-{position}")
            if letter is not None:
                letters.append(letter)
                if letter.attempts > attempts:
                    attempts, error = letter.attempts, letter.error
            for lane in await self._store.groups.lanes(group.id, partition=partition):
                if lane.committed == position and lane.attempts > attempts:
                    attempts, error = lane.attempts, lane.error
        return letters, attempts, error


def _list_position(head: MessageHead) -> ListPosition:
    return ListPosition(head.created_at, head.partition, head.position)


def _bound(partition: PartitionId, until: int, before: ListPosition | None) -> Upto:
    """Where reading a partition begins so that everything found lies behind `before`."""
    if before is None or before.created_at > until:
        return Upto(partition, until + 1)
    if partition == before.partition:
        return Upto(partition, before.created_at + 1, before.position)
    return Upto(partition, before.created_at + (partition < before.partition))


def status_of(position: int, standings: Sequence[Standing], dead: bool) -> Status:
    """Dead if any group gave it up; otherwise what it is to the queue's own group, or to all others together."""
    if dead:
        return "dead_letter"
    own = [standing for standing in standings if standing.group == QUEUE_MODE] or list(standings)
    if own and all(standing.has_finished(position) for standing in own):
        return "completed"
    if any(standing.holds(position) for standing in own):
        return "processing"
    return "pending"
