"""Pop: claims of one group are merged; a poll that finds nothing parks."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from uuid import UUID

import msgspec

from fairlane.broker.answer_room import AnswerRoom
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.flags import POP_MAINTENANCE, Flags
from fairlane.broker.leases import Leases
from fairlane.broker.popped import Popped, Taken
from fairlane.broker.waiters import NOT_MADE_YET, Waiters
from fairlane.errors import (
    FairlaneError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    SealError,
    ShuttingDown,
    StoreCorrupt,
    Unavailable,
)
from fairlane.model.group import Group, Subscription
from fairlane.model.ids import PartitionId, uuid7
from fairlane.model.lease import LeaseId
from fairlane.model.limits import BATCH_ITEMS_MAX, LEASE_SECONDS_MAX, WAIT_SECONDS_MAX
from fairlane.model.names import QUEUE_MODE, check_count, check_flag, check_name
from fairlane.model.queue import Queue
from fairlane.model.stream import STREAM_GROUPS
from fairlane.runtime.batcher import Batcher, BatchPolicy, Weight
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Claim, Lane, LaneAck, Nack, PopCall, PopResult
from fairlane.telemetry import Telemetry

_FLOOR_SECONDS = 2.0
"""A parked poll looks again this often whatever it was told: hints may be lost."""
_BATCHERS_MAX = 1000
"""Batchers that stay though nobody pops by them."""
_CORRUPT_PAUSE_MS = 60_000
_SEALED_PAUSE_MS = 5_000
"""A key that is missing here comes back, and other brokers may have it."""

log = logging.getLogger(__name__)


class PopRequest(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    queue: str
    group: str = QUEUE_MODE
    batch: int = 1
    partitions: int = 1
    partition: str | None = None
    auto_ack: bool = False
    lease_seconds: int | None = None
    wait_seconds: float = 0.0
    subscription: Subscription = Subscription()

    def check(self) -> PopRequest:
        """This request, or InvalidRequest."""
        check_name("queue", self.queue)
        check_name("group", self.group)
        check_count("batch", self.batch, least=1, most=BATCH_ITEMS_MAX)
        check_count("partitions", self.partitions, least=1, most=BATCH_ITEMS_MAX)
        if self.partition is not None:
            check_name("partition", self.partition)
        check_flag("auto_ack", self.auto_ack)
        if self.lease_seconds is not None:
            check_count("lease_seconds", self.lease_seconds, least=1, most=LEASE_SECONDS_MAX)
        if not isinstance(self.wait_seconds, int | float) or not 0 <= self.wait_seconds <= WAIT_SECONDS_MAX:
            raise InvalidRequest(f"wait is {self.wait_seconds!r:.40}; it must be 0 to {WAIT_SECONDS_MAX} seconds")
        if not isinstance(self.subscription, Subscription):
            raise InvalidRequest("subscription must be a Subscription")
        self.subscription.check()
        if self.subscription.conflation and (self.auto_ack or self.group == QUEUE_MODE):
            raise InvalidRequest(
                "conflation is for consumer groups, and does not go with finishing at delivery (autoAck)"
            )
        return self


Target = tuple[Queue, Group, PartitionId | None]
_Key = tuple[int, int, bool, int, PartitionId | None]


class Popper:
    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        leases: Leases,
        waiters: Waiters,
        *,
        telemetry: Telemetry,
        flags: Flags,
        room: AnswerRoom,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._leases = leases
        self._waiters = waiters
        self._telemetry = telemetry
        self._flags = flags
        self._room = room
        self._batchers: dict[_Key, Batcher[Claim, list[Lane]]] = {}
        self._due: dict[int, int | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._seeding: set[int] = set()
        """Groups that this broker gives their lanes."""
        self._stopping = False

    async def pop(self, request: PopRequest) -> Popped:
        """What is ready now, or within `wait_seconds`; an empty answer otherwise."""
        give_up_at = time.monotonic() + request.wait_seconds
        while not self._stopping and not await self._flags.is_on(POP_MAINTENANCE):
            target = await self._target(request) or await self._await_target(request, give_up_at)
            if target is None:
                if give_up_at <= time.monotonic():
                    self._telemetry.done(self._telemetry.pop, time.perf_counter(), 0)
                    break
                continue
            popped = await self._take_or_wait(request, target, give_up_at)
            if popped is not None:
                return popped
        return Popped(request.queue, request.group, None, [], request.subscription.conflation)

    async def _await_target(self, request: PopRequest, give_up_at: float) -> Target | None:
        """Wait until something is pushed to a queue or partition that was not there, perhaps this one; look first,
        for it may have been made since the last look."""
        left = give_up_at - time.monotonic()
        if left <= 0 or self._stopping:
            return None
        newcomer = self._waiters.park(NOT_MADE_YET, (0, ""))  # before the look, so that no push falls between
        try:
            target = await self._target(request)
            if target is None and not self._stopping:
                await self._waiters.wait([newcomer], min(left, _FLOOR_SECONDS))
            return target
        finally:
            self._waiters.leave(NOT_MADE_YET, (0, ""), newcomer)

    async def _take_or_wait(self, request: PopRequest, target: Target, give_up_at: float) -> Popped | None:
        """What can be claimed; None when it is worth another look."""
        queue, group, partition = target
        key = (group.id, request.partition or "")
        parked = self._waiters.park(queue.id, key) if request.wait_seconds else None
        began = time.perf_counter()
        try:
            popped = await self._take(request, queue, group, partition)
            if popped is None:
                return None
            left = give_up_at - time.monotonic()
            if popped.lanes or left <= 0 or self._stopping or parked is None:
                self._count(queue.id, popped, began)
                return popped
            await self._waiters.wait([parked], self._pause(group.id, left))
            return None
        finally:
            if parked is not None:
                self._waiters.leave(queue.id, key, parked)

    def _count(self, queue_id: int, popped: Popped, began: float) -> None:
        """Time spent parked is not the pop's."""
        items = sum(len(taken.positions) for taken in popped.lanes)
        self._telemetry.done(self._telemetry.pop, began, items)
        counts = self._telemetry.queue(queue_id)
        counts.pops += 1
        if not popped.lanes:
            counts.pops_empty += 1
            return
        counts.popped += items
        self._telemetry.redelivered += sum([taken.lane.attempts > 0 for taken in popped.lanes])
        lag_ms = max(0.0, self._store.id_time() - popped.lanes[0].created_at[0][1] / 1000)
        counts.lag_ms += lag_ms
        counts.lag_max_ms = max(counts.lag_max_ms, lag_ms)
        self._telemetry.time_in_queue.record(lag_ms / 1000, items)

    async def _target(self, request: PopRequest) -> Target | None:
        """Queue, group and partition; None while the queue or the partition is not there.

        A group that wants only what comes is begun also on a queue that nobody made yet: otherwise the first
        messages, pushed after this pop, would later count as history. So is one that conflates."""
        wanted = request.subscription
        make = request.group != QUEUE_MODE and (wanted.mode != "all" or wanted.conflation)
        queue = await self._catalogue.queue(request.tenant, request.queue, make=make)
        if queue is None:
            return None
        if request.subscription.conflation and queue.options.ordering == "unordered":
            raise InvalidRequest(
                f"queue {queue.name!r:.80} is unordered, where none is the newest: conflation is for ordered queues"
            )
        try:
            group = await self._catalogue.group(queue, request.group, request.subscription)
        except NotFound:
            self._catalogue.forget(queue.id)
            return None
        if group.seeding:
            self._catalogue.forget_group(queue.id, group.name)
            await self._seed(group)
        if request.partition is None:
            return queue, group, None
        known = self._catalogue.known_partition(queue, request.partition)
        if known is None:
            known = await self._store.queues.named(queue.id, request.partition)
        return None if known is None else (queue, group, known.id)

    async def _seed(self, group: Group) -> None:
        """One step towards a group that has all its lanes: then there is something to pop. The rest goes on beside."""
        if group.id in self._seeding:
            return
        self._seeding.add(group.id)
        more = False
        try:
            more = await self._store.groups.seed(group.id)
            if more:
                self._spawn(self._seed_rest(group))
        finally:
            if not more:
                self._seeding.discard(group.id)

    async def _seed_rest(self, group: Group) -> None:
        try:
            while await self._store.groups.seed(group.id):
                self._waiters.wake(group.queue_id, 1, group_id=group.id)
        finally:
            self._seeding.discard(group.id)

    async def _take(
        self, request: PopRequest, queue: Queue, group: Group, partition: PartitionId | None
    ) -> Popped | None:
        """What can be claimed at once; None if the queue or group went meanwhile."""
        # Named here rather than left to the store, so that the answer tells how long the lease really is.
        lease_seconds = request.lease_seconds or queue.options.lease_seconds
        key = (queue.id, group.id, request.auto_ack, lease_seconds, partition)
        batcher = self._batchers.get(key)
        if batcher is None:
            batcher = self._batchers[key] = Batcher(
                lambda claims: self._flush(key, claims, forgiving=group.name.startswith(STREAM_GROUPS)),
                BatchPolicy(flushes=self._store.flushes(), requests_max=100),
                weigh=lambda claim: Weight(claim.batch),
                unwanted=lambda claim, lanes: self.give_back(LeaseId(group.id, claim.token)) if lanes else None,
            )
        token = UUID(uuid7())
        try:
            lanes = await batcher.submit(
                Claim(token, request.batch, request.partitions, wants_due=request.wait_seconds > 0)
            )
        except NotFound:
            self._catalogue.forget(queue.id)
            return None
        finally:
            if len(self._batchers) > _BATCHERS_MAX and batcher.idle:
                self._batchers.pop(key, None)
        lease = None if request.auto_ack or not lanes else LeaseId(group.id, token)
        taken = [self._open(lane, lease) for lane in lanes]
        opened = [one for one in taken if one is not None]
        ordered = queue.options.ordering != "unordered"
        conflation = group.subscription.conflation
        return Popped(request.queue, request.group, lease, opened, conflation, ordered, lease_seconds)

    async def _flush(self, key: _Key, claims: list[Claim], *, forgiving: bool) -> Sequence[list[Lane] | Exception]:
        queue_id, group_id, auto_ack, lease_seconds, partition = key
        claimed, bytes_max = await self._room.claim(queue_id, claims)
        call = PopCall(
            queue_id=queue_id,
            group_id=group_id,
            claims=claims,
            auto_ack=auto_ack,
            lease_seconds=lease_seconds,
            partition=partition,
            forgiving=forgiving,
            bytes_max=bytes_max,
        )
        try:
            result: PopResult = await self._store.messages.pop(call)
        except OutcomeUnknown:
            # What was leased, if it was, belongs to nobody: its messages must not pay for that.
            for claim in claims:
                self.give_back(LeaseId(group_id, claim.token))
            raise
        finally:
            self._room.release(claimed)
        self._room.learn(queue_id, result.lanes)
        self._telemetry.leases_lost += result.leases_lost
        if result.dead:
            self._telemetry.gave_up(queue_id, result.dead)
        if result.gone:
            raise NotFound("the queue or the group was deleted")
        if any(claim.wants_due for claim in claims):
            self._due[group_id] = result.next_at
            if len(self._due) > 10_000:
                self._due.clear()
        return result.lanes

    def _open(self, lane: Lane, lease: LeaseId | None) -> Taken | None:
        """The lane's bytes; None, and the lane postponed, if they rotted."""
        try:
            taken = Taken(lane)
        except StoreCorrupt as error:
            log.error("cannot read partition %s (%s): %s", lane.partition, lane.name, error)
            if lease is not None:
                self._spawn(self._postpone(lane, lease, error))
            return None
        if lease is not None:
            self._leases.remember(str(lease), lease, lane)
        return taken

    async def _postpone(self, lane: Lane, lease: LeaseId, error: StoreCorrupt) -> None:
        pause = _SEALED_PAUSE_MS if isinstance(error, SealError) else _CORRUPT_PAUSE_MS
        partition = await self._catalogue.partition(lane.partition)
        unordered = partition is not None and partition.unordered
        nacks = [
            Nack(position, charge=False, error=str(error), delay_ms=pause)
            for position in range(lane.first, lane.upto if unordered else lane.first + 1)
        ]
        ack = LaneAck(
            partition=lane.partition, group_id=lease.group_id, token=lease.token, unordered=unordered, nacks=nacks
        )
        await self._store.messages.ack([ack])

    def give_back(self, lease: LeaseId) -> None:
        """The caller went away before its answer: nobody will work on it, and no message is to blame."""
        self._spawn(self._release(lease))

    async def _release(self, lease: LeaseId) -> None:
        for _ in range(10):
            try:
                released = await self._store.messages.release(lease)
                self._waiters.wake_group(lease.group_id, released)
                return
            except ShuttingDown:
                return
            except Unavailable:
                await asyncio.sleep(1.0)

    def _pause(self, group_id: int, left: float) -> float:
        """How long to stay parked: until a lane is due, the floor, or the end of the poll."""
        pause = min(left, _FLOOR_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311
        due_at = self._due.get(group_id)
        if due_at is not None:
            pause = min(pause, max(0.001, due_at / 1e6 - self._store.id_time() / 1e3))
        return pause

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def pending(self) -> int:
        return sum(batcher.pending for batcher in self._batchers.values())

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._spawned)

    def _spawned(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), FairlaneError):
            log.warning("error in a background step of pop: %s", error)

    async def stop(self) -> None:
        """Answer every poll, and finish giving back."""
        self._stopping = True
        self._waiters.wake_all()
        for batcher in list(self._batchers.values()):
            await batcher.stop()
        while self._tasks:
            await asyncio.wait(self._tasks)
