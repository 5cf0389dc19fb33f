"""A world for the route of writes: a clock of its own, and a store, its operations and a journal that are plain lists.

PeerStats of one broker share the journal and the store. The parts of each are real; the world decides what becomes of
the calls they make: whether a call is applied, when, and whether its caller hears of it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import selectors
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock
from uuid import UUID, uuid4

import msgspec

from fairlane.broker.ack import Acker, AckRequest
from fairlane.broker.capacity import QueueCapacity
from fairlane.broker.deferral import drain, journal_drain, store_health, store_timeout, write_router
from fairlane.broker.deferral.drain import OperationDrain
from fairlane.broker.deferral.enqueue import Enqueuer
from fairlane.broker.deferral.journal_drain import JournalDrain
from fairlane.broker.deferral.open_operations import OpenOperations
from fairlane.broker.deferral.write_router import WriteRouter
from fairlane.broker.fan_in_watch import FanInWatch
from fairlane.broker.leases import Leases
from fairlane.broker.push import Pusher
from fairlane.broker.push_batch import PushRequest
from fairlane.errors import OutcomeUnknown, StoreUnavailable
from fairlane.model.ids import PartitionId
from fairlane.model.lease import LeaseId
from fairlane.model.message import PushItem
from fairlane.model.operation import TIMEOUT_SECONDS, Operation
from fairlane.model.outcome import AckItem, AckOutcome, PushOutcome
from fairlane.model.queue import Partition, Queue, QueueOptions
from fairlane.store.contract.journal import ROW_BYTES, Backlog, Entry, JournalState, NewEntry
from fairlane.store.contract.operations import (
    Application,
    ApplyResult,
    BacklogClaim,
    ClaimedBacklog,
    Closed,
    Enqueued,
    EnqueueResult,
    Lost,
    NewOperation,
)
from fairlane.store.contract.values import (
    AckResult,
    Duplicate,
    Duplicates,
    LaneAck,
    Leased,
    OperationsAhead,
    PushResult,
    Slice,
    Stored,
)

TENANT, QUEUE = "default", "orders"
PARTITIONS = {"a": PartitionId(0, 1), "b": PartitionId(0, 2)}
LANE, GROUP, GROUP_ID = PartitionId(0, 3), "billing", 7
CALL_SECONDS = 0.01
_process: contextvars.ContextVar[Any] = contextvars.ContextVar("process", default=None)


class FakeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time only passes while no callback is ready."""

    def __init__(self) -> None:
        self.now = 1_000.0
        super().__init__(_Selector(self))
        self.set_task_factory(_made)

    def time(self) -> float:
        return self.now


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: FakeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing can ever happen again"
        self._loop.now += max(0.0, timeout)
        return super().select(0)


def _made(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **options)
    if (process := _process.get()) is not None:
        process.tasks.add(task)
    return task


class Operations:
    """The open operations of a backlog in the store."""

    def __init__(self) -> None:
        self.open: list[Operation] = []
        self.claim: UUID | None = None
        self.claimed_at = 0.0

    def apply(self, one: Application) -> ApplyResult:
        raise NotImplementedError


class Log(Operations):
    """A partition in the store: its messages by transactionId."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[str, str]] = []
        self.payloads: list[int] = []

    def apply(self, one: Application) -> ApplyResult:
        return Closed() if one.slice is None else self.append(one.slice)

    def append(self, part: Slice) -> Stored | Duplicates:
        known = {id: position for position, (id, _) in enumerate(self.messages)}
        found = [
            Duplicate(index, known[id], self.messages[known[id]][1], id)
            for index, (id, given) in enumerate(zip(part.transaction_ids, part.given, strict=True))
            if given and id in known  # ids that the broker made are not looked up
        ]
        if found:
            return Duplicates(found)
        first = len(self.messages)
        self.messages += [(id, f"stored-{first + index}") for index, id in enumerate(part.transaction_ids)]
        self.payloads += [msgspec.json.decode(fragment + b"}")["data"] for fragment in part.fragments]
        return Stored(first, 0)


Said = tuple[UUID, Literal["completed", "failed"], int]
"""A verdict of a consumer: its lease, its result, and the message at its position."""


class Lane(Operations):
    """A lane in the store: an endless log, a cursor, a lease, and the effects of acks."""

    def __init__(self) -> None:
        super().__init__()
        self.committed = self.upto = 0
        self.lease: UUID | None = None
        self.last_lease: UUID | None = None
        self.effects: list[Said] = []
        self.overtaken: list[tuple[int, int]] = []

    def pop(self, count: int) -> UUID:
        self.lease, self.upto = uuid4(), self.committed + count
        return self.lease

    def expire(self) -> None:
        self.lease = self.last_lease = None

    def _end(self) -> None:
        self.last_lease, self.lease = self.lease, None

    def apply(self, one: Application) -> ApplyResult:
        return Closed() if one.ack is None else self._ack(one.ack)

    def ack(self, ack: LaneAck) -> AckResult:
        return AckResult("operations_ahead") if self.open else self._ack(ack)

    def _ack(self, ack: LaneAck) -> AckResult:
        before, lease = self.committed, self.lease
        if lease is None or ack.token != lease:
            finished = not ack.nacks and all(upto <= before for _, upto in ack.done)
            repeated = ack.token == self.last_lease and finished
            return AckResult("lost", before=before, after=before, repeated=repeated)
        for first, upto in ack.done:
            if first > self.committed:
                self.overtaken.append((self.committed, first))
            for position in range(max(first, self.committed), min(upto, self.upto)):
                self.effects.append((lease, "completed", position))
                self.committed = position + 1
        for nack in ack.nacks:
            if nack.position > self.committed:
                self.overtaken.append((self.committed, nack.position))
            if before <= nack.position < self.upto:
                self.effects.append((lease, "failed", nack.position))
                self._end()
        if self.committed == self.upto and self.lease is not None:
            self._end()
        return AckResult(
            "ok", before=before, after=self.committed, released=self.lease is None, limit=max(before, self.upto)
        )


class World:
    def __init__(self, loop: FakeLoop) -> None:
        self.loop = loop
        self.logs = {id: Log() for id in PARTITIONS.values()}
        self.lane = Lane()
        self.backlogs: dict[tuple[PartitionId, int], Operations] = {(LANE, GROUP_ID): self.lane}
        self.backlogs |= {(id, 0): log for id, log in self.logs.items()}
        self.accepted_operations: set[UUID] = set()
        self.journal: list[Entry] = []
        self.version = 0
        self.drainer: int | None = None
        self.abandoned: dict[int, set[Backlog]] = {}
        self.flags: set[str] = set()
        self.away = False
        self.lost = 0
        """Number of store calls to apply without an answer."""
        self.sticking = 0
        """Number of pushes or acks to block in the store, as behind a foreign lock, while others continue."""
        self._unstuck = asyncio.Event()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._seq = itertools.count(1)
        self._members = itertools.count(1)
        self.processes: list[Process] = []
        self.tasks: set[asyncio.Task[Any]] = set()

    def freeze(self, *, frozen: bool) -> None:
        (self._thawed.clear if frozen else self._thawed.set)()

    def unstick(self) -> None:
        self.sticking = 0
        self._unstuck.set()
        self._unstuck = asyncio.Event()

    async def call(self, apply: Callable[[], Any], *, changes: bool = True, sticks: bool = False) -> Any:
        """Call the store. The call continues when its caller is gone.

        A call that is blocked at that time ends, because the server notices that its client is gone.
        """
        if self.away:
            raise StoreUnavailable("the store is away")
        process = _process.get()
        token = _process.set(None)
        try:
            work = self.loop.create_task(self._called(apply, changes, process if sticks else None))
        finally:
            _process.reset(token)
        self.tasks.add(work)
        work.add_done_callback(self._over)
        return await asyncio.shield(work)

    def _over(self, work: asyncio.Task[Any]) -> None:
        self.tasks.discard(work)
        if not work.cancelled():
            work.exception()

    async def _called(self, apply: Callable[[], Any], changes: bool, process: Process | None) -> Any:
        await asyncio.sleep(CALL_SECONDS)
        if process is not None and self.sticking:
            self.sticking -= 1
            await self._unstuck.wait()
            if process not in self.processes:
                raise StoreUnavailable("its client is gone")
        await self._thawed.wait()
        if self.away:
            raise StoreUnavailable("the store went away")
        answer = apply()
        await asyncio.sleep(CALL_SECONDS)
        await self._thawed.wait()
        if changes and self.lost:
            self.lost -= 1
            raise OutcomeUnknown("the answer was lost")
        return answer

    def start(self) -> Process:
        process = Process(self, next(self._members))
        self.processes.append(process)
        return process

    def crash(self, process: Process) -> None:
        """Crash: the memory is lost, the locks are free, and calls that reached the store continue."""
        self.processes.remove(process)
        self.abandoned.pop(process.member, None)
        if self.drainer == process.member:
            self.drainer = None
        for task in process.tasks:
            task.cancel()


class FakeStore:
    """The store as a process sees it: messages, operations, and the rest as far as the parts ask."""

    seals = sole_broker = True

    def __init__(self, world: World) -> None:
        self._world = world
        self.messages = SimpleNamespace(push=self._push, ack=self._ack, leased=self._leased)
        self.operations = self
        self.queues = SimpleNamespace(all=self._queues)
        self.groups = SimpleNamespace(result=self._result)

    def id_time(self) -> int:
        return int(self._world.loop.now * 1000)

    def cell_health(self) -> dict[int, str]:
        return {0: ""}

    async def _queues(self, tenant: str | None = None) -> list[Queue]:
        return []

    async def _result(self, *_: Any) -> None:
        """Return the result of an ack. A repeated ack stores nothing."""

    async def check_health(self) -> None:
        await self._world.call(lambda: None, changes=False)

    async def _push(self, slices: Sequence[Slice]) -> list[PushResult]:
        def push() -> list[PushResult]:
            logs = [(self._world.logs[part.partition], part) for part in slices]
            return [OperationsAhead() if log.open else log.append(part) for log, part in logs]

        return await self._world.call(push, sticks=True)  # type: ignore[no-any-return]

    async def _ack(self, acks: Sequence[LaneAck]) -> list[AckResult]:
        return await self._world.call(  # type: ignore[no-any-return]
            lambda: [self._world.lane.ack(ack) for ack in acks], sticks=True
        )

    async def _leased(self, lease: LeaseId) -> list[Leased]:
        def leased() -> list[Leased]:
            lane = self._world.lane
            return [Leased(LANE, 0, lane.upto, lane.committed, 0)] if lane.lease == lease.token else []

        return await self._world.call(leased, changes=False)  # type: ignore[no-any-return]

    async def enqueue(self, operations: Sequence[NewOperation]) -> list[EnqueueResult]:
        def enqueue() -> list[EnqueueResult]:
            return [self._enqueue(new) for new in operations]

        return await self._world.call(enqueue)  # type: ignore[no-any-return]

    def _enqueue(self, new: NewOperation) -> Enqueued:
        log = self._world.backlogs[new.partition, new.group_id]
        if new.id not in self._world.accepted_operations:
            self._world.accepted_operations.add(new.id)
            log.open.append(_operation(new, next(self._world._seq)))
        return Enqueued(max(1, len(log.open)))

    async def claim(self, worker: str, *, backlogs: int, run: int, run_bytes: int, token: UUID) -> list[ClaimedBacklog]:
        def claim() -> list[ClaimedBacklog]:
            found = []
            for (id, group_id), some in self._world.backlogs.items():
                now = self._world.loop.now
                if some.open and (some.claim is None or now > some.claimed_at + TIMEOUT_SECONDS):
                    some.claim, some.claimed_at = token, now
                    found.append(ClaimedBacklog(BacklogClaim(id, group_id, token), 1, some.open[:run]))
            return found

        return await self._world.call(claim)  # type: ignore[no-any-return]

    async def release(self, token: UUID) -> int:
        def give_back() -> int:
            mine = [one for one in self._world.backlogs.values() if one.claim == token]
            for log in mine:
                log.claim = None
            return len(mine)

        return await self._world.call(give_back)  # type: ignore[no-any-return]

    async def apply(self, work: Sequence[Application]) -> list[ApplyResult]:
        return await self._world.call(lambda: [self._apply(one) for one in work])  # type: ignore[no-any-return]

    def _apply(self, one: Application) -> ApplyResult:
        some = self._world.backlogs[one.claim.partition, one.claim.group_id]
        if some.claim != one.claim.token:
            return Lost()
        result = some.apply(one)
        if one.applied_by(result):
            one.results(result if isinstance(result, Stored | AckResult) else None)
            some.open = [operation for operation in some.open if operation.sequence not in one.sequences]
            some.claim = None
        return result

    async def postpone(self, claims: Sequence[BacklogClaim], *, delay_ms: int, error: str) -> int:
        return await self.release(claims[0].token)

    async def fail(self, *_: Any, **__: Any) -> int:
        raise AssertionError("nothing here can never be applied")

    async def depth(self) -> int:
        return await self._world.call(  # type: ignore[no-any-return]
            lambda: sum(len(one.open) for one in self._world.backlogs.values()), changes=False
        )

    async def clean(self, **_: Any) -> int:
        return 0


def _operation(new: NewOperation, sequence: int) -> Operation:
    shared = {name: getattr(new, name) for name in ("id", "type", "tenant", "queue", "partition_name", "group")}
    more = {name: getattr(new, name) for name in ("partition", "queue_id", "group_id", "payload", "messages")}
    return Operation(**shared, **more, status="pending", priority=5, size=0, created_at=0, sequence=sequence)


class FakeJournal:
    """The journal as one process sees it."""

    sealed = True

    def __init__(self, world: World, member: int) -> None:
        self._world = world
        self._member = member

    def version(self) -> int:
        return self._world.version

    def state(self) -> JournalState:
        entries = self._world.journal
        size = sum(len(entry.body) + ROW_BYTES for entry in entries)
        return JournalState(
            entries=len(entries),
            messages=sum(entry.messages for entry in entries),
            bytes=size,
            bytes_max=10**9,
            failed=0,
            oldest_at=entries[0].created_at if entries else None,
            backlogs=len({entry.backlog for entry in entries}),
        )

    def free_bytes(self) -> int:
        return 10**9

    def holds(self, backlogs: Iterable[Backlog]) -> set[Backlog]:
        return {entry.backlog for entry in self._world.journal}.intersection(backlogs)

    def drains(self) -> bool:
        if self._world.drainer is None:
            self._world.drainer = self._member
        return self._world.drainer == self._member

    def unsettled(self) -> set[Backlog]:
        return set().union(*[some for member, some in self._world.abandoned.items() if member != self._member])

    def open_body(self, entry: Entry) -> bytes:
        return entry.body

    async def _write(self, change: Callable[[], Any]) -> Any:
        """Write an entry.

        A process that dies before the middle wrote nothing; one that dies after it answered nobody.
        """
        await asyncio.sleep(CALL_SECONDS)
        answer = change()
        self._world.version += 1
        await asyncio.sleep(CALL_SECONDS)
        return answer

    async def append(self, entries: Sequence[NewEntry], abandoned: Collection[Backlog] = ()) -> dict[Backlog, int]:
        def append() -> dict[Backlog, int]:
            for backlog, messages, body, id in entries:
                self._world.journal.append(Entry(next(self._world._seq), backlog, messages, body, 0, None, id))
            self._world.abandoned[self._member] = set(abandoned)
            return Counter(entry.backlog for entry in self._world.journal)

        return await self._write(append)  # type: ignore[no-any-return]

    async def publish_abandoned(self, abandoned: Collection[Backlog]) -> None:
        if set(abandoned) != self._world.abandoned.get(self._member, set()):
            self._world.abandoned[self._member] = set(abandoned)
            self._world.version += 1

    async def backlogs(self) -> dict[Backlog, int]:
        return Counter(entry.backlog for entry in self._world.journal)

    async def read(self, backlogs: Sequence[Backlog], *, entries_max: int, bytes_max: int) -> list[Entry]:
        found = [entry for entry in self._world.journal if entry.backlog in backlogs][:entries_max]
        await asyncio.sleep(CALL_SECONDS)
        return found

    async def remove(self, entries: Sequence[Entry]) -> None:
        gone = {entry.seq for entry in entries}

        def remove() -> None:
            self._world.journal = [entry for entry in self._world.journal if entry.seq not in gone]

        await self._write(remove)

    async def fail(self, entry: Entry, error: str) -> None:
        raise AssertionError(f"nothing here can never be applied: {error}")

    async def adopt(self) -> None: ...

    async def save(self, **_: Any) -> None: ...


class FakeCatalogue:
    """One queue, which is always known."""

    def __init__(self, dedup_seconds: int = 3600) -> None:
        options = QueueOptions(dedup_seconds=dedup_seconds)
        self._queue = Queue(id=1, tenant=TENANT, name=QUEUE, namespace="", task="", options=options, created_at=0)

    def known(self, wanted: Any) -> Any:
        partitions = {name: Partition(id, 1, name) for name, id in PARTITIONS.items()}
        return {key: (self._queue, {label: partitions[label] for label in labels}) for key, labels in wanted.items()}

    async def find(self, wanted: Any, refused: Any) -> Any:
        return self.known(wanted)

    async def queue(self, tenant: str, name: str, *, make: bool) -> Queue:
        return self._queue

    def recall(self, tenant: str, name: str) -> Queue:
        return self._queue

    def recall_options(self, tenant: str, name: str) -> QueueOptions:
        return self._queue.options

    def recollect(self, queues: Any) -> None:
        pass

    async def partition(self, tenant: str, id: PartitionId) -> Partition:
        return Partition(id, 1, "c")

    async def names(self, tenant: str, id: PartitionId) -> tuple[str, str]:
        return QUEUE, "c"

    async def group_id(self, queue_id: int, name: str) -> int:
        return GROUP_ID


class Process:
    """A process of the broker: real components over the simulated world."""

    def __init__(self, world: World, member: int) -> None:
        self.world = world
        self.member = member
        self.tasks: set[asyncio.Task[Any]] = set()
        self.ready = asyncio.Event()
        _ = self.run(self._start())

    def run(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        """Run this in the process, until it crashes."""
        token = _process.set(self)
        try:
            return self.world.loop.create_task(work)  # type: ignore[arg-type]
        finally:
            _process.reset(token)

    async def _start(self) -> None:
        store: Any = FakeStore(self.world)
        catalogue: Any = FakeCatalogue()
        announcer: Any = mock.MagicMock()
        flags: Any = SimpleNamespace(on=self.world.flags, refresh_soon=lambda: None)
        journal: Any = FakeJournal(self.world, self.member)
        specs: Any = SimpleNamespace(loaded=False)
        keys: Any = SimpleNamespace(known=None)
        open_operations = OpenOperations()
        enqueuer = Enqueuer(store, catalogue, open_operations, QueueCapacity())
        pusher = Pusher(store, catalogue, announcer, enqueuer, QueueCapacity())
        waiters: Any = mock.MagicMock()
        telemetry: Any = mock.MagicMock()
        acker = Acker(
            store, catalogue, Leases(store), waiters, waiters, telemetry, enqueuer, mock.MagicMock(), FanInWatch()
        )
        self._operations = OperationDrain(store, catalogue, announcer, acker, open_operations)
        self.write_router = WriteRouter(store, catalogue, flags, pusher, acker, enqueuer, announcer, journal)
        self._drain = JournalDrain(journal, self.write_router, store, enqueuer, open_operations, flags, specs, keys)
        self._operations.start()
        self._drain.start()
        self.ready.set()

    async def push(self, partition: str, transaction_id: str | None, payload: bytes, *, defer: bool) -> PushOutcome:
        item = PushItem(queue=QUEUE, partition=partition, payload=payload, transaction_id=transaction_id)
        request = PushRequest(TENANT, [item])
        await self.ready.wait()
        push = self.write_router.enqueue if defer else self.write_router.push
        [answer] = await push(None, [request])
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, list)
        return answer[0]

    async def ack(self, said: Said, *, defer: bool) -> AckOutcome:
        lease, verdict, position = said
        item = AckItem(
            transaction_id=f"c-{position}",
            partition=LANE,
            status=verdict,
            lease=str(LeaseId(GROUP_ID, lease)),
            position=position,
        )
        await self.ready.wait()
        ack = self.write_router.enqueue_acks if defer else self.write_router.ack
        [answer] = await ack(None, [AckRequest(TENANT, GROUP, [item])])
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Sequence)
        return answer[0]


def clocked(loop: FakeLoop) -> contextlib.ExitStack:
    """Make the components use the loop's time."""
    stack = contextlib.ExitStack()
    for module in (drain, journal_drain, store_health, store_timeout, write_router):
        stack.enter_context(mock.patch.object(module, "monotonic", loop.time))
    return stack
