"""Browsing: pages of messages, newest first.

The order is (created_at, partition, position), which allows seeking to a page. Sorting by ids would require reading
every message of one moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

import msgspec

from fairlane.broker.newest import Newest
from fairlane.broker.resource import Resource
from fairlane.errors import InvalidRequest, NotFound
from fairlane.model.ids import PartitionId, is_uuid
from fairlane.model.moment import Moment, moment_or_none
from fairlane.model.names import QUEUE_MODE, name_or_none
from fairlane.model.queue import Queue
from fairlane.model.stats import Standing
from fairlane.store.contract.browse import ListPosition, StoredHead, Upto
from fairlane.wire.browse import BusStatus, ListMode, MessageHead, MessagePage, MessageQuery, Status

SCAN_MAX = 10_000
"""Messages skipped for one page whose filter needs the message itself. The page then ends early."""
_AT_ONCE_MAX = 1_000
"""Messages prepared in one step. Other tasks run in between."""
_HOUR = 3_600_000_000
_MINUTE = 60_000_000


class Found(msgspec.Struct):
    """Found messages, and the groups that read their partitions.

    `next` is the start of the next page, None on the last one.
    """

    messages: list[MessageHead]
    next: ListPosition | None
    groups: set[str]


class Browse(Resource):
    async def page(self, query: MessageQuery) -> MessagePage:
        if query.trace_id is not None and not is_uuid(query.trace_id):
            raise InvalidRequest(f"traceId must be a UUID, not {query.trace_id!r:.80}")
        now = await self._store.now()
        until = now if query.until is None else query.until
        default = 0 if query.transaction_id or query.trace_id or query.before else now - _HOUR
        query.since = Moment(default) if query.since is None else query.since
        query.until = Moment(until - until % _MINUTE + _MINUTE - 1)
        for what, name in (
            ("queue", query.queue),
            ("partition", query.partition),
            ("transactionId", query.transaction_id),
        ):
            name_or_none(what, name)
        queues = [
            queue
            for queue in await self._chosen_queues(query.queue)
            if query.ns in (None, queue.namespace) and query.task in (None, queue.task)
        ]
        found = await (self.search(queues, query) if query.position is None else self._from(queues, query))
        next = str(found.next) if found.next else None
        return MessagePage(messages=found.messages, mode=mode_of(found.groups), next=next)

    async def _chosen_queues(self, name: str | None) -> list[Queue]:
        if name is None:
            return await self._store.queues.all(self._tenant)
        found = await self._store.queues.get(self._tenant, name)
        return [] if found is None else [found]

    async def _from(self, queues: list[Queue], query: MessageQuery) -> Found:
        """Return messages of one partition by their positions."""
        if query.queue is None or query.partition is None:
            raise InvalidRequest("`position` needs `queue` and `partition`")
        partition = await self._store.queues.named(queues[0].id, query.partition) if queues else None
        if partition is None:
            raise NotFound(f"there is no partition {query.partition!r:.80} of a queue {query.queue!r:.80}")
        first = query.position or 0
        bound = Upto(partition.id, 2**53, first + query.limit)
        heads = await self._store.browse.newest([bound], since=0, limit=query.limit)
        some = [(head, (queues[0].id, partition.name)) for head in heads if head.at.position >= first]
        groups: set[str] = set()
        return Found(await self._with_status(queues, some, groups), None, groups)

    async def search(self, queues: list[Queue], query: MessageQuery) -> Found:
        """Return a page of these queues. Messages before its `offset` are read and skipped."""
        before = ListPosition.parse(query.before) if query.before else None
        if query.transaction_id is not None or query.trace_id is not None:
            return await self.find_by_id(queues, query, before)
        newest = Newest(
            self._store,
            [queue.id for queue in queues],
            partition=query.partition,
            since=query.since or 0,
            until=_until(query),
            before=before,
        )
        found = Found([], None, set())
        wanted, matched, passed_over, at_once = (
            query.offset + query.limit,
            0,
            0,
            min(max(query.limit, 20), _AT_ONCE_MAX),
        )
        while passed_over < SCAN_MAX:
            some = await newest.take(min(at_once, wanted - matched + SCAN_MAX - passed_over))
            if not some:
                found.next = None
                return found
            at_once = min(2 * at_once, _AT_ONCE_MAX)
            for seen, (head, _) in zip(await self._with_status(queues, some, found.groups), some, strict=True):
                found.next = head.at
                if not _matches(query, seen):
                    passed_over += 1
                    continue
                matched += 1
                if matched > query.offset:
                    found.messages.append(seen)
                if matched == wanted:
                    return found
        return found

    async def find_by_id(
        self,
        queues: list[Queue],
        where: MessageQuery,
        before: ListPosition | None = None,
        *,
        among: Sequence[PartitionId] | None = None,
    ) -> Found:
        """Return messages found by their transactionId or traceId, without reading others.

        `among` limits the search for a transactionId to some partitions.
        """
        ids = [queue.id for queue in queues]
        if where.transaction_id is not None:
            candidates = await self._store.browse.with_id(ids, where.transaction_id, among=among)
        else:
            candidates = await self._store.browse.traced(ids, where.trace_id or "", limit=SCAN_MAX)
        partitions = {
            (one.partition, one.position): (one.queue_id, one.name)
            for one in candidates
            if where.partition in (None, one.name)
        }
        bounds = [Upto(partition, _until(where) + 1, position + 1) for partition, position in partitions]
        heads = await self._store.browse.newest(bounds, since=where.since or 0, limit=1) if bounds else []
        some = {head.at: head for head in heads if head.at[1:] in partitions and (before is None or head.at < before)}
        ordered = [some[at] for at in sorted(some, reverse=True)]
        groups: set[str] = set()
        looked_at = await self._with_status(queues, [(head, partitions[head.at[1:]]) for head in ordered], groups)
        found = [(seen, head) for seen, head in zip(looked_at, ordered, strict=True) if _matches(where, seen)]
        page = found[where.offset : where.offset + where.limit]
        next = page[-1][1].at if page and len(found) > where.offset + where.limit else None
        return Found([seen for seen, _ in page], next, groups)

    async def _with_status(
        self, queues: list[Queue], some: list[tuple[StoredHead, tuple[int, str]]], groups: set[str]
    ) -> list[MessageHead]:
        by_id = {queue.id: queue for queue in queues}
        partitions = list({head.at.partition for head, _ in some})
        standings: dict[PartitionId, list[Standing]] = defaultdict(list)
        for standing in await self._store.statistics.standings(partitions):
            standings[standing.partition].append(standing)
            groups.add(standing.group)
        places = [head.at[1:] for head, _ in some]
        dead = await self._store.statistics.dead_among(places)
        cancelled = await self._store.cancellations.among(places)
        statuses = [status_of(at[1], standings[at[0]], at in dead, cancelled.get(at)) for at in places]
        return [
            _head(head, by_id[id], name, standings[head.at.partition], status)
            for (head, (id, name)), status in zip(some, statuses, strict=True)
        ]


def _matches(where: MessageQuery, seen: MessageHead) -> bool:
    return (
        where.status in (None, seen.status)
        and where.transaction_id in (None, seen.transaction_id)
        and (where.trace_id is None or (seen.trace_id or "").lower() == where.trace_id.lower())
    )


def _until(where: MessageQuery) -> int:
    return 2**53 if where.until is None else where.until


def status_of(
    position: int, standings: Sequence[Standing], dead: bool, cancelled: Collection[str] | None = None
) -> Status:
    """Return the status: dead if any group dead-lettered it, else for the queue's own group or for all others.

    `cancelled` has the groups for which it was cancelled. It is `cancelled` if these are the last of those that count.
    """
    if dead:
        return "dead_letter"
    own = [standing for standing in standings if standing.group == QUEUE_MODE] or list(standings)
    gone = cancelled or ()
    if all(standing.group in gone or standing.has_finished(position) for standing in own):
        if any(standing.group in gone for standing in own) or (not own and cancelled):
            return "cancelled"
        if own:
            return "completed"
    if any(standing.holds(position) for standing in own):
        return "processing"
    return "pending"


def mode_of(groups: Collection[str]) -> ListMode:
    own, others = QUEUE_MODE in groups, len(groups) - (QUEUE_MODE in groups)
    kind = ("hybrid" if others else "queue") if own else ("bus" if others else "none")
    return ListMode(has_queue_mode=own, bus_groups_count=others, type=kind)


def lease_expiry(position: int, standings: list[Standing]) -> Moment | None:
    """Return when the last lease that holds a message expires, or None if no lease does."""
    ends = [one.lease_ends_at for one in standings if one.holds(position) and one.lease_ends_at is not None]
    return moment_or_none(max(ends, default=None))


def _head(head: StoredHead, queue: Queue, partition: str, standings: list[Standing], status: Status) -> MessageHead:
    at, partition_id, position = head.at
    passed = [one for one in standings if one.has_finished(position)]
    return MessageHead(
        id=head.id,
        transaction_id=head.transaction_id,
        partition_id=str(partition_id),
        queue_path=f"{queue.name}/{partition}",
        queue=queue.name,
        partition=partition,
        namespace=queue.namespace,
        task=queue.task,
        status=status,
        trace_id=head.trace_id,
        producer_sub=head.producer_sub,
        position=position,
        queue_status=status if any(one.group == QUEUE_MODE for one in standings) else None,
        bus_status=BusStatus(consumed_by=len(passed), total_groups=len(standings)),
        queue_priority=queue.options.priority,
        created_at=Moment(at),
        lease_expires_at=lease_expiry(position, standings),
    )
