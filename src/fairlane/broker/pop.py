"""Pop: claims of one group are combined, and a poll that finds nothing waits."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic, perf_counter
from uuid import uuid4
from zlib import crc32

from fairlane.broker.ack_and_pop import AttachedAcker
from fairlane.broker.ack_flight import AttachedAcks
from fairlane.broker.catalogue import Catalogue
from fairlane.broker.deferral.write_router import WriteRouter
from fairlane.broker.flags import POPS_PAUSED, Flags
from fairlane.broker.leases import Leases
from fairlane.broker.pop_cleanup import PopCleanup
from fairlane.broker.pop_outcome import PopOutcome, PoppedLane
from fairlane.broker.pop_target import PopTargets, Target
from fairlane.broker.waiters import FLOOR_SECONDS, Waiters
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
from fairlane.model.names import STREAM_GROUPS
from fairlane.model.segment import Segment
from fairlane.runtime.background import BackgroundTasks
from fairlane.runtime.batcher import Batcher, BatchPolicy
from fairlane.runtime.memory import ByteBudget
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import ClaimedLane, PopCall, PopClaim, PopResult
from fairlane.telemetry import Telemetry

_PAUSE_SECONDS = 0.2
"""Pause of a waiting poll before it retries its own failure."""
_BATCHERS_MAX = 1000
"""Unused batchers that are kept."""

_LIGHT_BYTES = 1024 * 1024
_UNCERTAIN = 4
"""Safety factor over the message size seen so far."""
_QUEUES_MAX = 10_000

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
            if target is None and acks is not None:
                break
            left = 0.0 if self.stopping else give_up_at - monotonic()
            if target is None and (target := await self._targets.wait(request, left)) is None:
                if give_up_at <= monotonic():
                    self._telemetry.record(self._telemetry.pop, perf_counter(), 0)
                    break
                continue
            queue, group, _ = target
            key = (group.id, request.partition or "")
            parked = self._waiters.park(queue.id, key) if request.wait_seconds else None
            began = perf_counter()
            try:
                # The broker may have begun to stop during the lookup.
                popped = None if self.stopping else await self._claim(request, target, acks)
                pending, acks = acks is not None and bool(acks.pending), None
                if popped is None:
                    if pending:
                        break
                    continue
                left = give_up_at - monotonic()
                if popped.lanes or parked is None or left <= 0 or self.stopping or pending:
                    self._count(queue.id, popped, began)
                    return popped
                await self._waiters.wait([parked], self._pause(group.id, left))
            finally:
                if parked is not None:
                    self._waiters.remove(queue.id, key, parked)
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

    async def _claim(self, request: PopRequest, target: Target, acks: AttachedAcks | None) -> PopOutcome | None:
        """Claim what is ready now. Returns None if the queue or the group was deleted meanwhile."""
        queue, group, partition = target
        # Set here and not by the store, so that the answer has the actual length of the lease.
        lease_seconds = request.lease_seconds or queue.options.lease_seconds
        key = (queue.id, group.id, request.auto_ack, lease_seconds, partition)
        batcher = self._batchers.get(key) or self._batcher(key, group)
        lease, lease_id = LeaseId(group.id, uuid4()), ""
        claim = PopClaim(lease.token, request.batch, request.partitions, wants_due=request.wait_seconds > 0)
        if acks is not None:
            self._acker.attached[lease.token] = acks
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
                self._acker.attached.pop(lease.token, None)
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
        try:
            acks, messages = self._acker, self._store.messages
            popping = acks.pop(call, self.cleanup.give_back) if acks.attached else messages.pop(call)
            result: PopResult = await popping
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


class PopByteLimiter:
    """The limit on bytes that pops in flight may read, a share of the byte budget of the process.

    A pop takes as many messages as fit, and waits while other pops that may be large are in flight. The size of a
    queue's messages is learned from earlier pops, so that pops of small messages never wait.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._claimed = 0
        self._freed: asyncio.Future[None] | None = None
        self._sizes: dict[int, int] = {}
        """Bytes read for one message, by queue. More than its size if a part of a segment is read."""

    async def claim(self, queue_id: int, claims: Sequence[PopClaim]) -> tuple[int, int]:
        """Reserve bytes for these claims until `release`. Returns the reservation and the byte limit of each claim.

        Raises Overloaded if the budget is spent and no pop is about to free any.
        """
        each = self._sizes.get(queue_id)
        wanted = POP_BYTES_MAX * len(claims)
        if each is not None:
            wanted = sum([min(POP_BYTES_MAX, _UNCERTAIN * each * claim.batch) for claim in claims])
        budget = self._budget
        # The common case: the budget is large enough.
        if wanted <= _LIGHT_BYTES and budget.used < budget.bytes_max * 3 // 4:
            return 0, MESSAGE_BYTES_MAX
        least = min(wanted, MESSAGE_BYTES_MAX, self._budget.bytes_max // 4)
        while self._claimed and self._budget.answer_bytes_free - self._claimed < least:
            if self._freed is None:
                self._freed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._freed)
        room = self._budget.answer_bytes_free - self._claimed
        if room < least:
            raise Overloaded(
                "the broker holds all the bytes of requests and answers that it may; nothing was popped",
                retry_after=1.0,
            )
        claimed = min(wanted, room)
        self._claimed += claimed
        return claimed, max(1, min(POP_BYTES_MAX, claimed // len(claims)))

    def release(self, claimed: int) -> None:
        """Free a reservation after the callers have built their answers, which count against the budget themselves."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._release, claimed)

    def _release(self, claimed: int) -> None:
        self._claimed -= claimed
        if self._freed is not None:
            self._freed.set_result(None)
            self._freed = None

    def learn(self, queue_id: int, claimed: Sequence[Sequence[ClaimedLane]]) -> None:
        """Learn the message size of a queue from the first lane of each claim."""
        lanes = [lanes[0] for lanes in claimed if lanes]
        if not lanes:
            return
        size = sum([len(segment.body) for lane in lanes for segment in lane.segments])
        each = size // sum([lane.upto - lane.first for lane in lanes]) + 1
        known = self._sizes.get(queue_id, 0)
        if len(self._sizes) > _QUEUES_MAX:
            self._sizes.clear()
        self._sizes[queue_id] = each if each > known else (7 * known + each) // 8
