"""Browsing: pages of messages, newest first.

The order is that of (created_at, partition, position), which a page can be sought by: ids would need every message of
one moment to be read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from heapq import nlargest
from typing import Any, NamedTuple

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId, is_uuid
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import QUEUE_MODE, name_or_none
from fairlane.model.queue import Queue
from fairlane.model.stats import Standing
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import MessageHead as Stored
from fairlane.store.contract.values import Upto
from fairlane.wire.browse import (
    BusStatus,
    ListMode,
    MessageHead,
    MessagePage,
    MessageQuery,
    Status,
)

PARTITIONS_AT_ONCE = 20
HEADS_AT_ONCE_MAX = 50_000
"""Each look at the active partitions passes over all of them: few are read at first, for most pages need few, then
more, as long as what comes of them fits into memory with ease."""
SCAN_MAX = 10_000
"""Messages looked at for one page whose filter only the message itself can answer; the page then ends early."""
_HOUR = 3_600_000_000
_MINUTE = 60_000_000
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

    def matches(self, seen: MessageHead) -> bool:
        return (
            (self.status is None or seen.status == self.status)
            and (self.transaction_id is None or seen.transaction_id == self.transaction_id)
            and (self.trace_id is None or (seen.trace_id or "").lower() == self.trace_id.lower())
        )


class Found(msgspec.Struct):
    """Messages that were found, and the groups that read their partitions. `next` is where the next page begins; None
    when there is none."""

    messages: list[MessageHead]
    next: ListPosition | None
    groups: set[str]


class Browse:
    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    async def page(self, query: MessageQuery) -> MessagePage:
        if query.trace_id is not None and not is_uuid(query.trace_id):
            raise InvalidRequest(f"traceId must be a UUID, not {query.trace_id!r:.80}")
        now = await self._store.now()
        until = now if query.until is None else query.until
        default = 0 if query.transaction_id or query.trace_id or query.before else now - _HOUR
        where = MessageFilter(
            queues=[
                queue
                for queue in await self._store.queues.list(self._tenant)
                if query.queue in (None, queue.name)
                and query.ns in (None, queue.namespace)
                and query.task in (None, queue.task)
            ],
            partition=name_or_none("partition", query.partition),
            since=default if query.since is None else query.since,
            until=until - until % _MINUTE + _MINUTE - 1,
            status=query.status,
            transaction_id=query.transaction_id,
            trace_id=query.trace_id,
        )
        before = ListPosition.parse(query.before) if query.before else None
        found = await self.search(where, limit=query.limit, offset=query.offset, before=before)
        next = str(found.next) if found.next else None
        return MessagePage(messages=found.messages, mode=ListMode(**mode_of(found.groups)), next=next)

    async def search(
        self, where: MessageFilter, *, limit: int, offset: int = 0, before: ListPosition | None = None
    ) -> Found:
        """The messages before `offset` are walked over, which costs what reading them costs."""
        while offset > 0:
            skipped = await self._search(where, min(offset, 1000), before)
            if skipped.next is None:
                return Found([], None, set())
            offset -= len(skipped.messages)
            before = skipped.next
        return await self._search(where, limit, before)

    async def _search(self, where: MessageFilter, limit: int, before: ListPosition | None) -> Found:
        if where.transaction_id is not None or where.trace_id is not None:
            return await self._looked_up(where, limit, before)
        found = Found([], None, set())
        scanned = 0
        while scanned < SCAN_MAX:
            some = await self._newest(where, max(limit, 20), before)
            if not some:
                found.next = None
                return found
            for seen, (head, _) in zip(await self._with_status(where, some, found.groups), some, strict=True):
                found.next = before = _list_position(head)
                if where.matches(seen):
                    found.messages.append(seen)
                    if len(found.messages) == limit:
                        return found
            scanned += len(some)
        return found

    async def _looked_up(self, where: MessageFilter, limit: int, before: ListPosition | None) -> Found:
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
        groups: set[str] = set()
        looked_at = await self._with_status(
            where, [(head, partitions[head.partition, head.position]) for head in ordered], groups
        )
        found = [(seen, head) for seen, head in zip(looked_at, ordered, strict=True) if where.matches(seen)]
        next = _list_position(found[limit - 1][1]) if len(found) > limit else None
        return Found([seen for seen, _ in found[:limit]], next, groups)

    async def _newest(
        self, where: MessageFilter, count: int, before: ListPosition | None
    ) -> list[tuple[Stored, tuple[int, str]]]:
        """The newest messages behind `before`, each with queue and name of its partition. Partitions are asked latest
        write first, until one was written to before the last message found."""
        ids = [queue.id for queue in where.queues]
        best: list[Stored] = []
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

    async def _with_status(
        self, where: MessageFilter, some: list[tuple[Stored, tuple[int, str]]], groups: set[str]
    ) -> list[MessageHead]:
        queues = {queue.id: queue for queue in where.queues}
        partitions = list({head.partition for head, _ in some})
        standings: dict[PartitionId, list[Standing]] = defaultdict(list)
        for standing in await self._store.statistics.standings(partitions):
            standings[standing.partition].append(standing)
            groups.add(standing.group)
        dead = await self._store.statistics.dead_among([(head.partition, head.position) for head, _ in some])
        return [
            _head(head, queues[id], name, standings[head.partition], (head.partition, head.position) in dead)
            for head, (id, name) in some
        ]


def _list_position(head: Stored) -> ListPosition:
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


def mode_of(groups: Collection[str]) -> dict[str, Any]:
    own, others = QUEUE_MODE in groups, len(groups) - (QUEUE_MODE in groups)
    kind = ("hybrid" if others else "queue") if own else ("bus" if others else "none")
    return {"has_queue_mode": own, "bus_groups_count": others, "type": kind}


def common_of(queue: Queue, partition: str, position: int, standings: list[Standing]) -> dict[str, Any]:
    """What is told of every message, of its queue and its leases; the latest end of those that hold it."""
    ends = [one.lease_ends_at for one in standings if one.holds(position) and one.lease_ends_at is not None]
    return {
        "queue_path": f"{queue.name}/{partition}",
        "queue": queue.name,
        "partition": partition,
        "namespace": queue.namespace,
        "task": queue.task,
        "position": position,
        "lease_expires_at": moment_or_none(max(ends, default=None)),
    }


def _head(head: Stored, queue: Queue, partition: str, standings: list[Standing], dead: bool) -> MessageHead:
    status = status_of(head.position, standings, dead)
    passed = [one for one in standings if one.has_finished(head.position)]
    return MessageHead(
        id=head.id,
        transaction_id=head.transaction_id,
        partition_id=str(head.partition),
        status=status,
        queue_status=status if any(one.group == QUEUE_MODE for one in standings) else None,
        bus_status=BusStatus(consumed_by=len(passed), total_groups=len(standings)),
        trace_id=head.trace_id,
        queue_priority=queue.options.priority,
        created_at=Moment(head.created_at),
        **common_of(queue, partition, head.position, standings),
    )
