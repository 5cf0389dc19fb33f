"""Pop: claims of one group are merged; a poll that finds nothing parks."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic, perf_counter
from uuid import uuid4
from zlib import crc32

from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.route import Route
from fairlane.broker.delivery import Popped, Taken
from fairlane.broker.flags import POP_MAINTENANCE, Flags
from fairlane.broker.leases import Leases
from fairlane.broker.pop_chores import PopChores, Target
from fairlane.broker.waiters import NOT_MADE_YET, Waiters
from fairlane.errors import (
    LaneLocked,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    StoreCorrupt,
    StoreUnavailable,
    Unavailable,
)
from fairlane.model.group import Group
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId, PopRequest
from fairlane.model.limits import MESSAGE_BYTES_MAX, POP_BYTES_MAX
from fairlane.model.queue import Queue
from fairlane.model.segment import Segment
from fairlane.model.stream import STREAM_GROUPS
from fairlane.runtime.batcher import Batcher, BatchPolicy
from fairlane.runtime.memory import Budget
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import Claim, Lane, PopCall, PopResult
from fairlane.telemetry import Telemetry

_PAUSE_SECONDS = 0.2
"""Before a poll that waits tries again what failed for it alone."""
FLOOR_SECONDS = 2.0
"""A parked poll looks again this often whatever it was told: hints may be lost."""
_BATCHERS_MAX = 1000
"""Batchers that stay though nobody pops by them."""

_LIGHT_BYTES = 1024 * 1024
_UNCERTAIN = 4
"""How many times larger messages may be than was seen."""
_QUEUES_MAX = 10_000

log = logging.getLogger(__name__)


Look = Callable[[PopRequest, float], Awaitable[Popped]]
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
        budget: Budget,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._leases = leases
        self._waiters = waiters
        self._telemetry = telemetry
        self._flags = flags
        self._room = AnswerRoom(budget)
        self.chores = PopChores(store, catalogue, waiters)
        self.route: Route | None = None
        """Where there is a journal."""
        self._batchers: dict[_Key, Batcher[Claim, list[Lane]]] = {}
        self._due: dict[int, int | None] = {}
        self.stopping = False

    async def pop(self, request: PopRequest, look: Look | None = None) -> Popped:
        """What is ready now, or within `wait_seconds`; an empty answer otherwise. `look` is how to look, if not in the
        queue that is named.

        A poll that waits, waits for the store as well; one that does not is told at once that it is away. A pop that
        fails while the store is there fails alone."""
        look, route, give_up_at = look or self.look, self.route, monotonic() + request.wait_seconds
        try:
            if route is None:
                return await look(request, give_up_at)
            while True:
                if not route.watch.up and not await route.watch.wait_back(give_up_at - monotonic()):
                    raise StoreUnavailable(f"the store does not answer: {route.watch.why}")
                error: Unavailable
                try:
                    if request.wait_seconds and give_up_at > monotonic():
                        return await look(request, give_up_at)
                    async with asyncio.timeout(2 * route.patience.seconds):
                        return await look(request, give_up_at)
                except TimeoutError:
                    error = StoreUnavailable("a pop got no answer in time; try again")
                except (StoreUnavailable, OutcomeUnknown, LaneLocked) as failure:
                    error = failure
                if isinstance(error, LaneLocked) or await route.is_there(str(error)):
                    if give_up_at - monotonic() <= _PAUSE_SECONDS:
                        raise error
                    await asyncio.sleep(_PAUSE_SECONDS)
        except Exception:  # whatever it is, it is counted and goes on to the caller
            self._telemetry.pop.errors += 1
            raise

    async def look(self, request: PopRequest, give_up_at: float) -> Popped:
        """What is ready in the queue that is named, waiting for it until `give_up_at` if the request waits at all."""
        flags = self._flags
        while not self.stopping:
            unsure = monotonic() >= flags.look_at or POP_MAINTENANCE in flags.on
            if unsure and await flags.is_on(POP_MAINTENANCE):
                break
            target = self._known_target(request) or await self.chores.target(request)
            if target is None and (target := await self._await_target(request, give_up_at)) is None:
                if give_up_at <= monotonic():
                    self._telemetry.done(self._telemetry.pop, perf_counter(), 0)
                    break
                continue
            queue, group, partition = target
            key = (group.id, request.partition or "")
            parked = self._waiters.park(queue.id, key) if request.wait_seconds else None
            began = perf_counter()
            try:
                # The broker may have begun to stop while the target was looked for.
                popped = None if self.stopping else await self._take(request, queue, group, partition)
                if popped is None:
                    continue
                left = give_up_at - monotonic()
                if popped.lanes or parked is None or left <= 0 or self.stopping:
                    self._count(queue.id, popped, began)
                    return popped
                await self._waiters.wait([parked], self._pause(group.id, left))
            finally:
                if parked is not None:
                    self._waiters.leave(queue.id, key, parked)
        return Popped(request.queue, request.group, None, [], request.subscription.conflation)

    def _known_target(self, request: PopRequest) -> Target | None:
        """The queue and the group, if both were met a moment ago and there is nothing to do for them first."""
        known = self._catalogue.queues.get((request.tenant, request.queue))
        if known is None or known[1] <= monotonic() or request.partition is not None:
            return None
        queue = known[0]
        group = self._catalogue.groups.get((queue.id, request.group))
        if group is None or group.seeding or group.subscription.look or request.subscription.conflation:
            return None
        return queue, group, None

    async def _await_target(self, request: PopRequest, give_up_at: float) -> Target | None:
        """Wait until something is pushed to a queue or partition that was not there, perhaps this one; look first,
        for it may have been made since the last look."""
        left = give_up_at - monotonic()
        if left <= 0 or self.stopping:
            return None
        newcomer = self._waiters.park(NOT_MADE_YET, (0, ""))  # before the look, so that no push falls between
        try:
            target = await self.chores.target(request)
            if target is None and not self.stopping:
                await self._waiters.wait([newcomer], min(left, FLOOR_SECONDS))
            return target
        finally:
            self._waiters.leave(NOT_MADE_YET, (0, ""), newcomer)

    def _count(self, queue_id: int, popped: Popped, began: float) -> None:
        """Time spent parked is not the pop's."""
        lanes = popped.lanes
        items = sum([taken.lane.upto - taken.lane.first for taken in lanes])
        redelivered = sum([taken.lane.attempts > 0 for taken in lanes])
        lag_seconds = 0.0
        if lanes:
            popped_at = lanes[0].lane.lease_ends_at - popped.lease_seconds * 1_000_000
            lag_seconds = max(0, popped_at - lanes[0].created_at[0][1]) / 1e6
        self._telemetry.popped(queue_id, began, items, redelivered, lag_seconds)

    async def _take(
        self, request: PopRequest, queue: Queue, group: Group, partition: PartitionId | None
    ) -> Popped | None:
        """What can be claimed at once; None if the queue or group went meanwhile."""
        # Named here rather than left to the store, so that the answer tells how long the lease really is.
        lease_seconds = request.lease_seconds or queue.options.lease_seconds
        key = (queue.id, group.id, request.auto_ack, lease_seconds, partition)
        batcher = self._batchers.get(key) or self._batcher(key, group)
        lease, lease_id = LeaseId(group.id, uuid4()), ""
        claim = Claim(lease.token, request.batch, request.partitions, wants_due=request.wait_seconds > 0)
        future = batcher.put(claim, request.batch)
        try:
            lanes = await future
        except NotFound:
            self._catalogue.forget(queue.id)
            return None
        except asyncio.CancelledError:
            # The outcome may be there already, and the caller be cancelled before it got its turn.
            if future.done() and not future.cancelled() and future.exception() is None and future.result():
                self.chores.give_back(lease)
            raise
        finally:
            if len(self._batchers) > _BATCHERS_MAX and batcher.idle:
                self._batchers.pop(key, None)
        if lanes and not request.auto_ack:
            lease_id = f"{group.id}.{lease.token}"
        taken = []
        for lane in lanes:
            try:
                taken.append(_opened(lane))
                if lease_id:
                    self._leases.remember(lease_id, lease, lane)
                    if (queue.tenant, lane.partition) not in self._catalogue.by_id:
                        self._catalogue.met(queue, lane.partition, lane.name)
            except StoreCorrupt as error:
                log.error(
                    "cannot read partition %(partition)r (%(partition_id)s): %(error)s",
                    {"partition": lane.name, "partition_id": lane.partition, "error": error, "lease": lease_id},
                )
                if lease_id:
                    self.chores.postpone(lane, lease, error)
        return Popped(
            request.queue,
            request.group,
            lease if lease_id else None,
            taken,
            group.subscription.conflation,
            queue.options.ordering != "unordered",
            lease_seconds,
            lease_id,
            queue.options.retry_delay_ms,
        )

    def _batcher(self, key: _Key, group: Group) -> Batcher[Claim, list[Lane]]:
        forgiving = group.name.startswith(STREAM_GROUPS)
        batcher: Batcher[Claim, list[Lane]] = Batcher(
            lambda claims: self._flush(key, claims, forgiving=forgiving),
            BatchPolicy(flushes=self._store.flushes(), requests_max=100),
            unwanted=lambda claim, lanes: self.chores.give_back(LeaseId(group.id, claim.token)) if lanes else None,
        )
        self._batchers[key] = batcher
        return batcher

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
                self.chores.give_back(LeaseId(group_id, claim.token))
            raise
        finally:
            if claimed:
                self._room.release(claimed)
        self._room.learn(queue_id, result.lanes)
        self._telemetry.leases_lost += result.leases_lost
        if result.dead:
            self._telemetry.gave_up(queue_id, result.dead)
        if result.gone:
            raise NotFound("the queue or the group was deleted")
        if [claim for claim in claims if claim.wants_due]:
            self._due[group_id] = result.next_at
            if len(self._due) > 10_000:
                self._due.clear()
        return result.lanes

    def _pause(self, group_id: int, left: float) -> float:
        """How long to stay parked: until a lane is due, the floor, or the end of the poll."""
        pause = min(left, FLOOR_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311
        due_at = self._due.get(group_id)
        if due_at is not None:
            pause = min(pause, max(0.001, due_at / 1e6 - self._store.id_time() / 1e3))
        return pause

    @property
    def pending(self) -> int:
        return sum(batcher.pending for batcher in self._batchers.values())

    async def stop(self) -> None:
        """Answer every poll, and finish giving back."""
        self.stopping = True
        self._waiters.wake_all()
        for batcher in list(self._batchers.values()):
            await batcher.stop()
        await self.chores.finish()


def _opened(lane: Lane) -> Taken:
    """The lane with its bytes checked; StoreCorrupt if some rotted or are missing."""
    created_at: list[tuple[int, int]] = []
    position, upto = lane.first, lane.upto
    for segment in lane.segments:
        if type(segment) is not Segment or crc32(segment.body) != segment.checksum:
            segment.check()
        end = min(segment.first + len(segment.ends), upto)
        if segment.first > position or end <= position:
            break
        created_at.append((end - position, segment.created_at))
        position = end
    if position != upto:
        raise StoreCorrupt(f"positions {lane.first} to {upto - 1} are not all there")
    return Taken(lane, created_at)


class AnswerRoom:
    """The answer room of pops: their share of the budget that the process has for its clients.

    A pop takes as many messages as fit, and waits its turn while others that may be large are under way. How large the
    messages of a queue are is learned from what was popped, so that pops of small ones, as nearly all are, need no
    turn."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._claimed = 0
        self._freed: asyncio.Future[None] | None = None
        self._sizes: dict[int, int] = {}
        """Bytes that are read for one message, by queue: more than it has, where a part of a segment is read."""

    async def claim(self, queue_id: int, claims: Sequence[Claim]) -> tuple[int, int]:
        """What is kept free for these claims until `release`, and how many bytes each may take. Overloaded if there is
        no room, and none will be soon."""
        each = self._sizes.get(queue_id)
        wanted = POP_BYTES_MAX * len(claims)
        if each is not None:
            wanted = sum([min(POP_BYTES_MAX, _UNCERTAIN * each * claim.batch) for claim in claims])
        budget = self._budget
        if wanted <= _LIGHT_BYTES and budget.used < budget.bytes_max * 3 // 4:  # mostly: there is room
            return 0, MESSAGE_BYTES_MAX
        least = min(wanted, MESSAGE_BYTES_MAX, self._budget.bytes_max // 4)
        while self._claimed and self._budget.room - self._claimed < least:
            if self._freed is None:
                self._freed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._freed)
        room = self._budget.room - self._claimed
        if room < least:
            raise Overloaded(
                "the broker holds as many bytes of requests and answers as it may; nothing was taken", retry_after=1.0
            )
        claimed = min(wanted, room)
        self._claimed += claimed
        return claimed, max(1, min(POP_BYTES_MAX, claimed // len(claims)))

    def release(self, claimed: int) -> None:
        """Once those who claimed it have made their answers, which count by themselves."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._release, claimed)

    def _release(self, claimed: int) -> None:
        self._claimed -= claimed
        if self._freed is not None:
            self._freed.set_result(None)
            self._freed = None

    def learn(self, queue_id: int, taken: Sequence[Sequence[Lane]]) -> None:
        """From the first lane of each claim."""
        lanes = [lanes[0] for lanes in taken if lanes]
        if not lanes:
            return
        size = sum([len(segment.body) for lane in lanes for segment in lane.segments])
        each = size // sum([lane.upto - lane.first for lane in lanes]) + 1
        known = self._sizes.get(queue_id, 0)
        if len(self._sizes) > _QUEUES_MAX:
            self._sizes.clear()
        self._sizes[queue_id] = each if each > known else (7 * known + each) // 8
