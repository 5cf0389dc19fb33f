"""Merges concurrent operations of one kind into flushes, and hands each caller its own outcome."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar

from fairlane.engine.batch_policy import BatchPolicy, Weight
from fairlane.engine.flush_cost import FlushCost
from fairlane.engine.pace import Pace
from fairlane.errors import ShuttingDown

_FEW = 32
"""Fewer items than this travel together and are no load, however slow the store is: a handful of callers that wait for
one another's flush would be held back for what they do not cause."""
_UNCERTAIN = 8.0
"""How many times more an item may cost than it was seen to."""

Op = TypeVar("Op")
Out = TypeVar("Out")
Later = asyncio.Future[Any]
"""An outcome that is not there yet when its flush is over."""


class Batcher(Generic[Op, Out]):
    """`flush` gets operations and returns one outcome for each, in order; an exception among them is that caller's
    alone.

    An exception that `flush` raises is everybody's. `unwanted` is told of outcomes whose caller has gone.
    """

    def __init__(
        self,
        flush: Callable[[list[Op]], Awaitable[Sequence[Out | Exception | Later]]],
        policy: BatchPolicy,
        *,
        weigh: Callable[[Op], Weight] = lambda _: Weight(1),
        unwanted: Callable[[Op, Out], None] = lambda _op, _out: None,
    ) -> None:
        self._flush = flush
        self._policy = policy
        self._weigh = weigh
        self._unwanted = unwanted
        self._waiting: deque[tuple[Op, Weight, asyncio.Future[Out], float]] = deque()
        self._items = 0
        self._items_flushing = 0
        self._cost = FlushCost()
        self._pace = Pace()
        self._flushing = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: set[Later] = set()
        self._stopped = False

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._tasks or self._late)

    @property
    def pending(self) -> int:
        """Operations that wait, and flushes under way."""
        return len(self._waiting) + self._flushing

    @property
    def busy(self) -> float:
        """The share of the flushes that are under way."""
        return self._flushing / self._policy.flushes

    @property
    def items(self) -> int:
        """Of operations that wait or are under way."""
        return self._items + self._items_flushing

    @property
    def rate(self) -> float:
        """Items a second that it got done lately; 0 until it is known."""
        return self._pace.rate

    def waited(self, now: float) -> float:
        """How long the oldest operation that waits has done so, at `now` (`time.perf_counter`)."""
        return now - self._waiting[0][3] if self._waiting else 0.0

    def backlog_seconds(self) -> float | None:
        """How much longer the next operation takes for what waits and is under way; None while that is not known."""
        if not self._cost.item_seconds:
            return None
        items = self.items
        if items < _FEW:
            return 0.0
        by_cost = items * self._cost.item_seconds / self._policy.flushes
        by_pace = self._pace.wait_seconds(items)
        # The cost alone is too uncertain. But where it is next to nothing, more could be done at once than was.
        return by_cost if by_pace is None else min(by_pace, _UNCERTAIN * by_cost)

    @property
    def flushes_waiting(self) -> float:
        """How many full flushes what waits would make."""
        return max(len(self._waiting) / self._policy.requests_max, self._items / self._policy.items_max)

    async def submit(self, op: Op) -> Out:
        """The outcome of `op`, which travels with whatever else waits."""
        if self._stopped:
            raise ShuttingDown("the broker is stopping")
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        weight = self._weigh(op)
        self._items += weight.items
        self._waiting.append((op, weight, future, perf_counter()))
        self._fire()
        try:
            return await future
        except asyncio.CancelledError:
            # The outcome may be there already, and the caller be cancelled before it got its turn.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._unwanted(op, future.result())
            raise

    def _fire(self) -> None:
        if self._waiting and self._policy.may_fire(len(self._tasks)):
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._fire()

    async def _run(self) -> None:
        """One flush after another while something waits."""
        while self._waiting:
            weights = (weight for _, weight, _, _ in self._waiting)
            count = self._policy.take(weights, items=self._items, running=self._flushing)
            batch = [self._waiting.popleft() for _ in range(count)]
            items = sum(weight.items for _, weight, _, _ in batch)
            self._items -= items
            self._fire()
            batch = [entry for entry in batch if not entry[2].cancelled()]
            if not batch:
                continue
            outcomes: Sequence[Out | Exception | Later]
            began = perf_counter()
            self._flushing += 1
            self._items_flushing += items
            try:
                outcomes = await self._flush([op for op, _, _, _ in batch])
            except Exception as error:  # the boundary of a flush: its callers get it
                outcomes = [error] * len(batch)
            finally:
                self._flushing -= 1
                self._items_flushing -= items
                ended = perf_counter()
                self._cost.saw(items, ended - began)
                self._pace.saw(items, began, ended)
            for (op, _, future, _), outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, asyncio.Future):
                    self._late.add(outcome)
                    outcome.add_done_callback(partial(self._answer_late, op, future))
                else:
                    self._answer(op, future, outcome)

    def _answer_late(self, op: Op, future: asyncio.Future[Out], outcome: Later) -> None:
        self._late.discard(outcome)
        error = outcome.exception()
        self._answer(op, future, error if isinstance(error, Exception) else outcome.result())

    def _answer(self, op: Op, future: asyncio.Future[Out], outcome: Out | Exception) -> None:
        if future.done():
            if not isinstance(outcome, Exception):
                self._unwanted(op, outcome)
        elif isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    async def stop(self) -> None:
        """Take nothing new, answer everybody who waits."""
        self._stopped = True
        while waiting := {*self._tasks, *self._late}:
            await asyncio.wait(waiting)
