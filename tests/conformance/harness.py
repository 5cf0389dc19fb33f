"""One store configuration under test, with short helpers for the tests."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID, uuid4

import msgspec

from fairlane.broker.broker import Broker
from fairlane.broker.engine import build_engine
from fairlane.model.group import Group, LaneState, Subscription
from fairlane.model.ids import PartitionId, Uuid7, id_key, uuid7_ms
from fairlane.model.lease import LeaseId
from fairlane.model.limits import POP_BYTES_MAX
from fairlane.model.message import Message, PushItem
from fairlane.model.names import DEFAULT_PARTITION, DEFAULT_TENANT, QUEUE_MODE
from fairlane.model.outcome import RenewOutcome
from fairlane.model.queue import Partition, Queue, labels_of, queue_options
from fairlane.model.segment import messages, pack
from fairlane.store.contract.store import Store
from fairlane.store.contract.values import (
    NO_ID_TIME,
    AckResult,
    ClaimedLane,
    LaneAck,
    Nack,
    PartitionLocked,
    PopCall,
    PopClaim,
    PushResult,
    Renewal,
    Slice,
    Stored,
    ToDeadLetter,
)
from tests.clock import ManualClock
from tests.conformance.backends import Arrived, Backend, Row

_numbers = itertools.count(1)
T = TypeVar("T")


async def answer(call: Awaitable[T]) -> T:
    """Return a call as a coroutine for a task. Some stores return a future."""
    return await call


@dataclass
class Taken:
    """The lanes and messages that one claim got."""

    group: Group
    token: UUID
    lanes: list[ClaimedLane]
    next_at: int | None = None

    @property
    def lease(self) -> LeaseId:
        return LeaseId(self.group.id, self.token)

    @property
    def lane(self) -> ClaimedLane:
        """Return the only lane."""
        [lane] = self.lanes
        return lane

    @property
    def messages(self) -> list[Message[Any]]:
        return [m for lane in self.lanes for m in messages(lane.segments, lane.first, lane.upto)]

    @property
    def data(self) -> list[Any]:
        return [msgspec.json.decode(message.raw) for message in self.messages]

    @property
    def positions(self) -> list[int]:
        return [message.position for message in self.messages]

    def __bool__(self) -> bool:
        return bool(self.lanes)


@dataclass
class Harness:
    """The harness of a test. `backend` opens and inspects stores; `store` is the one that is open now."""

    backend: Backend
    clock: ManualClock
    store: Store
    seconds: list[Store] = field(default_factory=list)
    _broker: Broker | None = None
    _brokers: list[Broker] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.backend.url

    def name(self, base: str) -> str:
        """Return a name that no other test uses, because tests share a database where creating one is slow."""
        return f"{base}-{next(_numbers)}-{uuid4().hex[:8]}"

    def mint(self) -> str:
        """Make a UUIDv7 from the store's current time, which may differ from the host's."""
        return Uuid7(lambda: self.clock() // 1000)()

    def token(self) -> UUID:
        return uuid4()

    async def reopen(self, *, own_clock: bool = False) -> None:
        """Close the store and open it again, with the test's clock or its own."""
        await (self._broker or self.store).close()
        self.store = await self.backend.open(None if own_clock else self.clock)

    async def open_second(self) -> Store:
        """Open another broker's store on the same data. Returns the first one if the store allows only one."""
        if not self.backend.many_brokers:
            return self.store
        second = await self.backend.open(self.clock)
        self.seconds.append(second)
        return second

    def hold(self, row: Row) -> AbstractAsyncContextManager[Arrived]:
        """Block transactions that lock this row until the block ends."""
        return self.backend.hold(self.store, row)

    @property
    def broker(self) -> Broker:
        """The broker over the open store."""
        if self._broker is None or self._broker._engine.store is not self.store:
            self._broker = Broker(build_engine(self.store))
        return self._broker

    async def second_broker(self) -> Broker:
        """Open another broker on the same data. Returns the first one if the store allows only one."""
        store = await self.open_second()
        if store is self.store:
            return self.broker
        second = Broker(build_engine(store))
        self._brokers.append(second)
        return second

    async def close(self) -> None:
        for broker in (*self._brokers, *([self._broker] if self._broker else [])):
            await broker.close()
        for store in (*self.seconds, self.store):
            await store.close()

    async def queue(self, base: str = "orders", /, **options: Any) -> Queue:
        name = self.name(base)
        namespace, task = labels_of(name)
        return await self.store.queues.configure(
            DEFAULT_TENANT, name, queue_options(**options), namespace=namespace, task=task
        )

    async def configure(self, queue: Queue, **options: Any) -> Queue:
        return await self.store.queues.configure(
            queue.tenant, queue.name, queue_options(**options), namespace=queue.namespace, task=queue.task
        )

    async def partition(self, queue: Queue, name: str = DEFAULT_PARTITION) -> Partition:
        [partition] = await self.store.queues.ensure_partitions(queue.id, [name])
        return partition

    async def neighbours(self, queue: Queue, count: int) -> list[Partition]:
        """Return the partitions in the order of their creation."""
        return [await self.partition(queue, f"lane {number}") for number in range(count)]

    async def group(self, queue: Queue, name: str = QUEUE_MODE, subscription: Subscription | None = None) -> Group:
        group = await self.store.groups.subscribe(queue.id, name, subscription or Subscription())
        while await self.store.groups.seed(group.id):
            pass
        return group

    def slice(
        self,
        queue: Queue,
        partition: Partition,
        payloads: Sequence[Any],
        ids: Sequence[str] | None = None,
        given: bool | None = None,
    ) -> Slice:
        """Return messages for one partition. Without `ids` they get new ones, made like the broker's."""
        minted, _, _ = Uuid7(lambda: self.clock() // 1000).many(len(payloads))
        names = list(ids) if ids is not None else minted
        given = ids is not None if given is None else given
        fragments = []
        for message_id, name, payload in zip(minted, names, payloads, strict=True):
            item = PushItem(queue=queue.name, payload=msgspec.json.encode(payload))
            fragments.append(pack(message_id, name, item))
        times = [uuid7_ms(name) for name in names]
        return Slice(
            partition=partition.id,
            queue_id=queue.id,
            options=queue.options,
            fragments=fragments,
            transaction_ids=names,
            keys=[id_key(name) for name in names],
            id_times=[NO_ID_TIME if time is None else time for time in times],
            given=[given] * len(names),
        )

    async def try_push(
        self,
        queue: Queue,
        payloads: Sequence[Any],
        *,
        partition: str = DEFAULT_PARTITION,
        ids: Sequence[str] | None = None,
        store: Store | None = None,
    ) -> PushResult:
        lane = await self.partition(queue, partition)
        part = self.slice(queue, lane, payloads, ids)
        while True:
            [result] = await (store or self.store).messages.push([part])
            if not isinstance(result, PartitionLocked):  # a machine may be slow while a test holds a row
                return result

    async def push(
        self,
        queue: Queue,
        payloads: Sequence[Any],
        *,
        partition: str = DEFAULT_PARTITION,
        ids: Sequence[str] | None = None,
        store: Store | None = None,
    ) -> Stored:
        result = await self.try_push(queue, payloads, partition=partition, ids=ids, store=store)
        assert isinstance(result, Stored), result
        return result

    async def pop(
        self,
        queue: Queue,
        group: Group | None = None,
        *,
        batch: int = 10,
        partitions: int = 1,
        auto_ack: bool = False,
        lease_seconds: int | None = None,
        partition: PartitionId | None = None,
        forgiving: bool = False,
        bytes_max: int = POP_BYTES_MAX,
        store: Store | None = None,
    ) -> Taken:
        group = group or await self.group(queue)
        claim = PopClaim(uuid4(), batch, partitions)
        call = PopCall(
            queue_id=queue.id,
            group_id=group.id,
            claims=[claim],
            auto_ack=auto_ack,
            lease_seconds=lease_seconds,
            partition=partition,
            forgiving=forgiving,
            bytes_max=bytes_max,
        )
        result = await (store or self.store).messages.pop(call)
        assert not result.gone
        [lanes] = result.lanes
        return Taken(group, claim.token, lanes, result.next_at)

    @asynccontextmanager
    async def stopped_pop(
        self, queue: Queue, group: Group, *, batch: int = 10, partitions: int = 1, auto_ack: bool = False
    ) -> AsyncIterator[tuple[Taken, Arrived]]:
        """Run a pop that has done its work and commits at the end of the block. Yields what it got."""
        claim = PopClaim(uuid4(), batch, partitions)
        call = PopCall(queue_id=queue.id, group_id=group.id, claims=[claim], auto_ack=auto_ack)
        async with self.backend.stop_pop(self.store, call, self.clock) as (result, arrived):
            [lanes] = result.lanes
            yield Taken(group, claim.token, lanes, result.next_at), arrived

    def ordered_ack(
        self,
        taken: Taken,
        upto: int = 0,
        *,
        nack: Nack | None = None,
        dead_letters: Sequence[ToDeadLetter] = (),
        results: Sequence[tuple[int, bytes]] = (),
    ) -> LaneAck:
        """Return an ack of the only lane taken."""
        return LaneAck(
            partition=taken.lane.partition,
            group_id=taken.group.id,
            token=taken.token,
            done=[(0, upto)],
            nacks=[nack] if nack else [],
            dead_letters=list(dead_letters),
            results=list(results),
        )

    async def apply(self, ordered_ack: LaneAck, *, store: Store | None = None) -> AckResult:
        while True:
            [acked] = await (store or self.store).messages.ack([ordered_ack])
            if acked.state != "locked":
                return acked

    async def ack(self, taken: Taken, upto: int | None = None, *, store: Store | None = None) -> AckResult:
        """Finish the lane taken, completely or below `upto`."""
        upto = taken.lane.upto if upto is None else upto
        return await self.apply(self.ordered_ack(taken, upto), store=store)

    async def nack(
        self,
        taken: Taken,
        position: int | None = None,
        *,
        upto: int = 0,
        charge: bool = True,
        error: str = "boom",
        delay_ms: int | None = None,
    ) -> AckResult:
        position = taken.lane.first if position is None else position
        return await self.apply(self.ordered_ack(taken, upto, nack=Nack(position, charge, error, delay_ms)))

    async def renew(self, lease: LeaseId, *, seconds: int) -> RenewOutcome:
        [outcome] = await self.store.messages.renew([Renewal(lease, seconds)])
        return outcome

    async def lane(self, group: Group, partition: PartitionId | None = None) -> LaneState:
        """Return the lane of the group, which is the only one unless named."""
        [lane] = await self.store.groups.lanes(group.id, partition=partition)
        return lane

    async def next_ready_at(self, group_id: int) -> int | None:
        """Return when the earliest lane of the group is ready, or None while no lane has anything to read."""
        times = [lane.ready_at for lane in await self.store.groups.lanes(group_id)]
        return min((at for at in times if at is not None), default=None)

    async def drain(self, queue: Queue, group: Group | None = None) -> list[Any]:
        """Pop and ack until nothing is ready. Returns the payloads in the order of delivery."""
        group = group or await self.group(queue)
        seen: list[Any] = []
        while taken := await self.pop(queue, group, batch=100):
            seen += taken.data
            assert (await self.ack(taken)).state == "ok"
        return seen
