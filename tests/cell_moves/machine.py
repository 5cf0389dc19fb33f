"""A state machine over two brokers, two cells and moves that are interrupted, with a small model of what must hold."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import asyncpg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairlane.broker.broker import Broker
from fairlane.broker.transaction import Transaction
from fairlane.errors import Conflict, FairlaneError, InvalidRequest, NotFound, TransactionSpansCells, Unavailable
from fairlane.model.message import Message
from fairlane.model.names import QUEUE_MODE
from fairlane.store.cells.cluster import set_state
from fairlane.store.cells.move import QueueMover
from fairlane.store.postgres.store import PostgresStore
from tests.cells.conftest import Urls
from tests.cells.directories import directory_of, restore_directory

T = TypeVar("T")
STEPS = (
    *("noted", "source taken", "target taken", "locked", "announced", "delivered"),
    *("departed", "arrived", "directed", "cleaned"),
)
"""Steps of a move at which its process may be killed."""
LEFT = STEPS.index("departed")
BACK = STEPS.index("directed")
QUEUES = ("orders", "invoices", "returns")
_examples = itertools.count(1)
queues, brokers, cells = st.sampled_from(QUEUES), st.integers(0, 1), st.integers(0, 1)


class Killed(Exception):
    """The end of a process that moves a queue."""


@dataclass
class Queue:
    """The state that a queue must have."""

    cell: int
    log: list[int] = field(default_factory=list)
    done: int = 0
    popped: Sequence[Message[Any]] = ()
    to: int | None = None
    """The target of a move that was interrupted."""
    step: int = -1
    """The last step of that move."""

    @property
    def away(self) -> bool:
        """True while no cell has the queue."""
        return self.to is not None and self.step == LEFT

    @property
    def unsettled(self) -> bool:
        """True while brokers need not find the queue, although it may have arrived."""
        return self.to is not None and LEFT <= self.step < BACK


class World:
    """Two brokers on two cells, used by all examples. Each example has queues of its own."""

    def __init__(self, urls: Urls) -> None:
        self.urls = urls
        self.loop = asyncio.new_event_loop()
        self.run(self._open())

    async def _open(self) -> None:
        self.opened = [Broker.open(self.urls.home, retention_interval=0) for _ in range(2)]
        self.brokers = [await one.__aenter__() for one in self.opened]
        self.home = await PostgresStore.open(self.urls.home)
        self.rows = [await asyncpg.connect(url) for url in (self.urls.home, self.urls.second)]

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    def close(self) -> None:
        self.run(self._close())
        self.loop.close()

    async def _close(self) -> None:
        for one in self.opened:
            await one.__aexit__(None, None, None)
        await self.home.close()
        for row in self.rows:
            await row.close()

    async def cells_with(self, name: str) -> list[int]:
        schemas = ("fairlane", "fairlane_1")
        return [
            cell
            for cell, (rows, schema) in enumerate(zip(self.rows, schemas, strict=True))
            if await rows.fetchval(f"SELECT 1 FROM {schema}.queues WHERE name = $1", name)
        ]


async def killed_move(url: str, name: str, to: int, last: str) -> None:
    """Move a queue by a process that is killed after a step: its connections are cut, and it cleans nothing up."""
    home = await PostgresStore.open(url)

    async def reached(step: str) -> None:
        if step == last:
            await home.close()
            raise Killed

    try:
        await QueueMover(home, reached=reached).move("default", name, to)
    except (Killed, FairlaneError):
        return
    finally:
        await home.close()
    raise AssertionError(f"the move went past {last}")


class CellsMachine(RuleBasedStateMachine):
    """Calls of two brokers in any order, while queues move and the directories of the brokers are old."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.prefix = f"e{next(_examples)}-"
        self.queues: dict[str, Queue] = {}
        self.placed: dict[str, int] = {}
        """The cells of queues that were deleted. A queue of the home may then be created anywhere."""
        self.full: set[int] = set()
        self.numbers = itertools.count()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.world.run(call)

    def name(self, queue: str) -> str:
        return self.prefix + queue

    def refused(self, call: Coroutine[Any, Any, Any], *errors: type[FairlaneError]) -> FairlaneError:
        """Return the error with which a call is refused."""
        try:
            result = self.run(call)
        except errors as error:
            return error
        raise AssertionError(f"it was not refused: {result}")

    # Queues.

    @initialize(chosen=st.tuples(cells, cells, cells))
    def create_all(self, chosen: tuple[int, ...]) -> None:
        for queue, cell in zip(QUEUES, chosen, strict=True):
            self.create(queue, cell, cell)

    @rule(queue=queues, broker=brokers, cell=cells)
    def create(self, queue: str, broker: int, cell: int) -> None:
        if queue in self.queues:
            return
        call = self.world.brokers[broker].queues.configure(self.name(queue), cell=str(cell))
        if cell in self.full or self.placed.get(queue, cell) != cell:
            self.refused(call, Conflict)
        else:
            self.run(call)
            self.queues[queue] = Queue(cell)

    @rule(queue=queues, broker=brokers)
    def delete(self, queue: str, broker: int) -> None:
        if (model := self.queues.get(queue)) is None or model.to is not None:
            return
        assert self.run(self.world.brokers[broker].queues.delete(self.name(queue)))
        if cell := self.queues.pop(queue).cell:
            self.placed[queue] = cell
        else:
            self.placed.pop(queue, None)

    @rule(cell=cells)
    def close_or_reopen_cell(self, cell: int) -> None:
        self.run(set_state(self.world.home, cell, "open" if cell in self.full else "full"))
        self.full ^= {cell}

    # Messages.

    @rule(queue=queues, broker=brokers, count=st.integers(1, 5))
    def push(self, queue: str, broker: int, count: int) -> None:
        if (model := self.queues.get(queue)) is None:
            return
        for _ in range(count):
            number = next(self.numbers)
            call = self.world.brokers[broker].push(self.name(queue), number, transaction_id=f"{queue} {number}")
            outcome = self.allowed(model, call)
            if outcome is None:
                return
            assert outcome.status == "queued"
            model.log.append(number)

    def allowed(self, model: Queue, call: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of a call. None if it is refused because the queue is on its way."""
        try:
            result = self.run(call)
        except Unavailable:
            assert model.unsettled
            return None
        assert not model.away
        return result

    @rule(queue=queues, broker=brokers)
    def push_again(self, queue: str, broker: int) -> None:
        model = self.queues.get(queue)
        if model is None or not model.log or model.unsettled:
            return
        number = model.log[-1]
        call = self.world.brokers[broker].push(self.name(queue), number, transaction_id=f"{queue} {number}")
        assert self.run(call).status == "duplicate"

    @rule(queue=queues, broker=brokers, batch=st.integers(1, 4))
    def pop(self, queue: str, broker: int, batch: int) -> None:
        model = self.queues.get(queue)
        if model is None or model.popped:
            return
        wanted = model.log[model.done : model.done + batch]
        call = _popped(self.world.brokers[broker], self.name(queue), batch, last=not wanted)
        try:
            model.popped = self.run(call)
        except Unavailable:
            assert model.unsettled
            return
        assert not (model.away and model.popped)
        if model.popped or not model.unsettled:
            assert [one.data for one in model.popped] == wanted

    @precondition(lambda self: any(model.popped for model in self.queues.values()))
    @rule(queue=queues, broker=brokers)
    def ack(self, queue: str, broker: int) -> None:
        """Ack by any broker what another one popped, also in another cell."""
        model = self.queues.get(queue)
        if model is None or not model.popped:
            return
        try:
            outcomes = [one.success for one in self.run(self.world.brokers[broker].ack(model.popped))]
        except Unavailable:
            assert model.unsettled
            return
        if model.unsettled and not any(outcomes):
            return
        assert all(outcomes)
        assert not model.away
        model.done += len(model.popped)
        model.popped = ()

    @rule(one=queues, other=queues, broker=brokers)
    def transact(self, one: str, other: str, broker: int) -> None:
        first, second = self.queues.get(one), self.queues.get(other)
        if first is None or second is None or first is second or first.unsettled or second.unsettled:
            return
        numbers = next(self.numbers), next(self.numbers)
        transaction = Transaction()
        for queue, number in zip((one, other), numbers, strict=True):
            transaction.push(self.name(queue), number, transaction_id=f"{queue} {number}")
        call = self.world.brokers[broker].transact(transaction.steps)
        if first.cell != second.cell:
            error = str(self.refused(call, TransactionSpansCells))
            assert self.name(one) in error
            assert self.name(other) in error
            return
        self.run(call)
        first.log.append(numbers[0])
        second.log.append(numbers[1])

    # Moves.

    @rule(queue=queues, cell=cells, stale=st.booleans())
    def move(self, queue: str, cell: int, stale: bool) -> None:
        """Move a queue, or finish its move. With `stale`, the brokers then believe what they did before."""
        model = self.queues.get(queue)
        call = QueueMover(self.world.home).move("default", self.name(queue), cell)
        if model is None:
            self.refused(call, NotFound, Conflict)
        elif (model.to is not None and cell != model.to) or (model.to is None and cell in self.full):
            self.refused(call, Conflict)
        elif model.to is None and cell == model.cell:
            self.refused(call, InvalidRequest)
        else:
            before = [directory_of(one) for one in self.world.brokers]
            self.run(call)
            model.cell, model.to, model.step = cell, None, -1
            if stale:
                for broker, known in zip(self.world.brokers, before, strict=True):
                    restore_directory(broker, known)

    @rule(queue=queues, last=st.sampled_from(STEPS))
    def move_by_a_killed_process(self, queue: str, last: str) -> None:
        model = self.queues.get(queue)
        if model is None or model.to is not None or 1 - model.cell in self.full:
            return
        model.to, model.step = 1 - model.cell, STEPS.index(last)
        self.run(killed_move(self.world.urls.home, self.name(queue), model.to, last))
        if model.step >= BACK:
            model.cell = model.to

    @precondition(lambda self: any(model.to is not None for model in self.queues.values()))
    @rule(queue=queues)
    def abort(self, queue: str) -> None:
        model = self.queues.get(queue)
        if model is None or model.to is None:
            return
        call = QueueMover(self.world.home).abort("default", self.name(queue))
        if model.step >= LEFT:
            self.refused(call, Conflict)
        else:
            self.run(call)
            model.to, model.step = None, -1

    # What must hold.

    @invariant()
    def a_queue_is_in_one_cell(self) -> None:
        for queue, model in self.queues.items():
            found = self.run(self.world.cells_with(self.name(queue)))
            if model.to is not None and model.step == LEFT:
                assert found == []
            elif model.to is not None and model.step > LEFT:
                assert found == [model.to]
            else:
                assert found == [model.cell]

    def teardown(self) -> None:
        """Finish all moves, and read every log by both brokers: nothing is lost, doubled or reordered."""
        for cell in sorted(self.full):
            self.close_or_reopen_cell(cell)
        for queue, model in self.queues.items():
            if model.to is not None:
                self.run(QueueMover(self.world.home).move("default", self.name(queue), model.to))
            for number, broker in enumerate(self.world.brokers):
                assert self.run(_read(broker, self.name(queue), f"reader-{number}", len(model.log))) == model.log
            assert self.run(self.world.brokers[0].queues.delete(self.name(queue)))


async def _popped(
    broker: Broker, queue: str, batch: int, *, group: str = QUEUE_MODE, last: bool
) -> Sequence[Message[Any]]:
    """Pop, and pop again if that was the first call after a move, which may find nothing.

    `last` says that there is nothing to find.
    """
    for _ in range(1 if last else 2):
        if messages := (await broker.pop(queue, batch=batch, group=group)).messages:
            return messages
    return ()


async def _read(broker: Broker, queue: str, group: str, count: int) -> list[int]:
    """Return all messages of a queue, as a new group gets them from the beginning."""
    found: list[int] = []
    while messages := await _popped(broker, queue, 100, group=group, last=len(found) >= count):
        found += [one.data for one in messages]
        await broker.ack(messages)
    return found
