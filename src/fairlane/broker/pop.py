"""Pop: claims of one group are combined, and a poll that finds nothing waits."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic, perf_counter
from uuid import UUID, uuid4
from zlib import crc32

from fairlane.broker.ack_and_pop import AttachedAcker
from fairlane.broker.ack_flight import AttachedAcks
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.write_router import WriteRouter
from fairlane.broker.flags import POPS_PAUSED, Flags
from fairlane.broker.leases import Leases
from fairlane.broker.pop_byte_limiter import PopByteLimiter
from fairlane.broker.pop_cleanup import PopCleanup
from fairlane.broker.pop_outcome import PopOutcome, PoppedLane
from fairlane.broker.pop_target import PopTargets, Target
from fairlane.broker.waiters import NOT_MADE_YET, Waiters
from fairlane.errors import (
    LaneLocked,
    NotFound,
    OutcomeUnknown,
    StoreCorrupt,
    StoreUnavailable,
    Unavailable,
)
from fairlane.model.group import Group
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId, PopRequest
from fairlane.model.names import STREAM_GROUPS
from fairlane.model.queue import Queue
from fairlane.model.segment import Segment
from fairlane.runtime.background import BackgroundTasks
from fairlane.runtime.batcher import Batcher, BatchPolicy
from fairlane.runtime.memory import ByteBudget
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import ClaimedLane, PopCall, PopClaim, PopResult
from fairlane.telemetry import Telemetry

_PAUSE_SECONDS = 0.2
"""Pause of a waiting poll before it retries its own failure."""
FLOOR_SECONDS = 2.0
"""Interval at which a waiting poll tries again, because hints may be lost."""
_BATCHERS_MAX = 1000
"""Unused batchers that are kept."""

log = logging.getLogger(__name__)


PopUntil = Callable[[PopRequest, float], Awaitable[PopOutcome]]
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
        budget: ByteBudget,
        acker: AttachedAcker,
        write_router: WriteRouter | None,
    ) -> None:
        """Create the popper. `write_router` is None without a journal."""
        self._acker = acker
        self._attached: dict[UUID, AttachedAcks] = {}
        """Acks that are applied with a claim, by its token."""
        self._store = store
        self._catalogue = catalogue
        self._leases = leases
        self._waiters = waiters
        self._telemetry = telemetry
        self._flags = flags
        self._byte_limiter = PopByteLimiter(budget)
        self.background = BackgroundTasks("pop")
        self.cleanup = PopCleanup(store, waiters, self.background)
        self._targets = PopTargets(store, catalogue, waiters, self.background)
        self._write_router = write_router
        self._batchers: dict[_Key, Batcher[PopClaim, list[ClaimedLane]]] = {}
        self._due: dict[int, int | None] = {}
        self.stopping = False

    async def pop(self, request: PopRequest, pop_until: PopUntil | None = None) -> PopOutcome:
        """Return what is ready now or within `wait_seconds`, or an empty outcome.

        `pop_until` reads from somewhere else than the queue that the request names. A long poll also waits for the
        store to come back; other pops fail at once while it is unavailable. A pop that fails while the store answers
        fails alone.
        """
        pop_until, router = pop_until or self.pop_until, self._write_router
        give_up_at = monotonic() + request.wait_seconds
        try:
            if router is None:
                return await pop_until(request, give_up_at)
            while True:
                if not router.health.up and not await router.health.wait_available(give_up_at - monotonic()):
                    raise StoreUnavailable(f"the store does not answer: {router.health.why}")
                error: Unavailable
                try:
                    if request.wait_seconds and give_up_at > monotonic():
                        return await pop_until(request, give_up_at)
                    async with asyncio.timeout(2 * router.timeout.seconds):
                        return await pop_until(request, give_up_at)
                except TimeoutError:
                    error = StoreUnavailable("a pop got no answer in time; try again")
                except (StoreUnavailable, OutcomeUnknown, LaneLocked) as failure:
                    error = failure
                if isinstance(error, LaneLocked) or await router.check_store(str(error)):
                    if give_up_at - monotonic() <= _PAUSE_SECONDS:
                        raise error
                    await asyncio.sleep(_PAUSE_SECONDS)
        except Exception:  # counted, then raised
            self._telemetry.pop.errors += 1
            raise

    async def pop_until(self, request: PopRequest, give_up_at: float, acks: AttachedAcks | None = None) -> PopOutcome:
        """Return what is ready in the queue that the request names. A long poll waits for it until `give_up_at`.

        `acks` are applied with the first claim. The poll does not wait while some are pending.
        """
        flags = self._flags
        while not self.stopping:
            unsure = monotonic() >= flags.fresh_until or POPS_PAUSED in flags.on
            if unsure and await flags.is_on(POPS_PAUSED):
                break
            target = self._known_target(request) or await self._targets.find(request)
            if target is None and acks is not None and acks.pending:
                break
            if target is None and (target := await self._await_target(request, give_up_at)) is None:
                if give_up_at <= monotonic():
                    self._telemetry.record(self._telemetry.pop, perf_counter(), 0)
                    break
                continue
            queue, group, partition = target
            key = (group.id, request.partition or "")
            parked = self._waiters.park(queue.id, key) if request.wait_seconds else None
            began = perf_counter()
            try:
                # The broker may have begun to stop during the lookup.
                popped = None if self.stopping else await self._claim(request, queue, group, partition, acks)
                pending = acks is not None and bool(acks.pending)
                acks = None
                if popped is None and pending:
                    break
                if popped is None:
                    continue
                left = give_up_at - monotonic()
                if popped.lanes or parked is None or left <= 0 or self.stopping or pending:
                    self._count(queue.id, popped, began)
                    return popped
                await self._waiters.wait([parked], self._pause(group.id, left))
            finally:
                if parked is not None:
                    self._waiters.leave(queue.id, key, parked)
        return PopOutcome(request.queue, request.group, None, [], request.subscription.conflation)

    def _known_target(self, request: PopRequest) -> Target | None:
        """Return the queue and the group if both are cached and nothing has to be done for them first."""
        known = self._catalogue.queues.get((request.tenant, request.queue))
        if known is None or known[1] <= monotonic() or request.partition is not None:
            return None
        queue = known[0]
        group = self._catalogue.groups.get((queue.id, request.group))
        if group is None or group.seeding or group.subscription.look or request.subscription.conflation:
            return None
        return queue, group, None

    async def _await_target(self, request: PopRequest, give_up_at: float) -> Target | None:
        """Return the target if it exists. Otherwise wait until a new queue or partition gets a message. None then."""
        left = give_up_at - monotonic()
        if left <= 0 or self.stopping:
            return None
        newcomer = self._waiters.park(NOT_MADE_YET, (0, ""))  # before the lookup, so that no push is missed in between
        try:
            target = await self._targets.find(request)
            if target is None and not self.stopping:
                await self._waiters.wait([newcomer], min(left, FLOOR_SECONDS))
            return target
        finally:
            self._waiters.leave(NOT_MADE_YET, (0, ""), newcomer)

    def _count(self, queue_id: int, popped: PopOutcome, began: float) -> None:
        """Record the pop. Time spent parked does not count as its latency."""
        lanes = popped.lanes
        items = sum([popped_lane.lane.upto - popped_lane.lane.first for popped_lane in lanes])
        redelivered = sum([popped_lane.lane.attempts > 0 for popped_lane in lanes])
        lag_seconds = 0.0
        if lanes:
            popped_at = lanes[0].lane.lease_ends_at - popped.lease_seconds * 1_000_000
            lag_seconds = max(0, popped_at - lanes[0].created_at[0][1]) / 1e6
        self._telemetry.record_pop(queue_id, began, items, redelivered, lag_seconds)

    async def _claim(
        self,
        request: PopRequest,
        queue: Queue,
        group: Group,
        partition: PartitionId | None,
        acks: AttachedAcks | None = None,
    ) -> PopOutcome | None:
        """Claim what is ready now. Returns None if the queue or the group was deleted meanwhile."""
        # Set here and not by the store, so that the answer has the actual length of the lease.
        lease_seconds = request.lease_seconds or queue.options.lease_seconds
        key = (queue.id, group.id, request.auto_ack, lease_seconds, partition)
        batcher = self._batchers.get(key) or self._batcher(key, group)
        lease, lease_id = LeaseId(group.id, uuid4()), ""
        claim = PopClaim(lease.token, request.batch, request.partitions, wants_due=request.wait_seconds > 0)
        if acks is not None:
            self._attached[lease.token] = acks
        future = batcher.put(claim, request.batch)
        try:
            lanes = await future
        except NotFound:
            self._catalogue.forget(queue.id)
            return None
        except asyncio.CancelledError:
            # The outcome may exist already, if the caller is cancelled just before it resumes.
            if future.done() and not future.cancelled() and future.exception() is None and future.result():
                self.cleanup.give_back(lease)
            raise
        finally:
            if acks is not None:
                self._attached.pop(lease.token, None)
            if len(self._batchers) > _BATCHERS_MAX and batcher.idle:
                self._batchers.pop(key, None)
        if lanes and not request.auto_ack:
            lease_id = f"{group.id}.{lease.token}"
        popped = []
        for lane in lanes:
            try:
                popped.append(_checked(lane))
                if lease_id:
                    self._leases.remember(lease_id, lease, lane)
                    if (queue.tenant, lane.partition) not in self._catalogue.by_id:
                        self._catalogue.remember_partition(queue, lane.partition, lane.name)
            except StoreCorrupt as error:
                log.error(
                    "cannot read partition %(partition)r (%(partition_id)s): %(error)s",
                    {"partition": lane.name, "partition_id": lane.partition, "error": error, "lease": lease_id},
                )
                if lease_id:
                    self.cleanup.postpone(lane, lease, error)
        return PopOutcome(
            request.queue,
            request.group,
            lease if lease_id else None,
            popped,
            group.subscription.conflation,
            queue.options.ordering != "unordered",
            lease_seconds,
            lease_id,
            queue.options.retry_delay_ms,
        )

    def _batcher(self, key: _Key, group: Group) -> Batcher[PopClaim, list[ClaimedLane]]:
        forgiving = group.name.startswith(STREAM_GROUPS)
        batcher: Batcher[PopClaim, list[ClaimedLane]] = Batcher(
            lambda claims: self._flush(key, claims, forgiving=forgiving),
            BatchPolicy(flushes=self._store.flushes(), requests_max=100),
            unwanted=lambda claim, lanes: self.cleanup.give_back(LeaseId(group.id, claim.token)) if lanes else None,
        )
        self._batchers[key] = batcher
        return batcher

    async def _flush(
        self, key: _Key, claims: list[PopClaim], *, forgiving: bool
    ) -> Sequence[list[ClaimedLane] | Exception]:
        queue_id, group_id, auto_ack, lease_seconds, partition = key
        claimed, bytes_max = await self._byte_limiter.claim(queue_id, claims)
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
        attached: list[AttachedAcks] = []
        if self._attached:
            attached = [self._attached.pop(claim.token) for claim in claims if claim.token in self._attached]
        try:
            result: PopResult
            if attached:
                result = await self._acker.ack_and_pop(attached, call, self.cleanup)
            else:
                result = await self._store.messages.pop(call)
        except OutcomeUnknown:
            # If messages were leased, no consumer has them, and they must not be charged an attempt.
            for claim in claims:
                self.cleanup.give_back(LeaseId(group_id, claim.token))
            raise
        finally:
            if claimed:
                self._byte_limiter.release(claimed)
        self._byte_limiter.learn(queue_id, result.lanes)
        self._telemetry.leases_lost += result.leases_lost
        if result.dead:
            self._telemetry.record_dead_letters(queue_id, result.dead)
        if result.expired:
            self._telemetry.queue(queue_id).expired += result.expired
        if result.gone:
            raise NotFound("the queue or the group was deleted")
        if [claim for claim in claims if claim.wants_due]:
            self._due[group_id] = result.next_at
            if len(self._due) > 10_000:
                self._due.clear()
        return result.lanes

    def _pause(self, group_id: int, left: float) -> float:
        """Return how long to stay parked: until a lane is due, the next safety check, or the end of the poll."""
        pause = min(left, FLOOR_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311
        due_at = self._due.get(group_id)
        if due_at is not None:
            pause = min(pause, max(0.001, due_at / 1e6 - self._store.id_time() / 1e3))
        return pause

    @property
    def pending(self) -> int:
        return sum(batcher.pending for batcher in self._batchers.values())

    async def stop(self) -> None:
        """Answer every poll, and finish the background tasks."""
        self.stopping = True
        self._waiters.wake_all()
        for batcher in list(self._batchers.values()):
            await batcher.stop()
        await self.background.finish()


def _checked(lane: ClaimedLane) -> PoppedLane:
    """Verify the bytes of a lane. Raises StoreCorrupt if some are damaged or missing."""
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
        raise StoreCorrupt(f"some of the positions {lane.first} to {upto - 1} are missing")
    return PoppedLane(lane, created_at)
