"""The batcher: merges concurrent requests of one kind into flushes, and hands each caller its own outcome."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar

from fairlane.engine.batch_policy import BatchPolicy, Weight
from fairlane.engine.rate import Rate
from fairlane.errors import ShuttingDown

_LATELY_SECONDS = 2.0
"""What was done counts for about this long."""

Op = TypeVar("Op")
Out = TypeVar("Out")
LateAnswer = asyncio.Future[Any]
"""An outcome that is not there yet when its flush is over."""


class Batcher(Generic[Op, Out]):
    """`flush` gets requests and returns one outcome for each, in order; an exception among them is that caller's
    alone.

    An exception that `flush` raises is everybody's. `unwanted` is told of outcomes whose caller has gone.
    """

    def __init__(
        self,
        flush: Callable[[list[Op]], Awaitable[Sequence[Out | Exception | LateAnswer]]],
        policy: BatchPolicy,
        *,
        weigh: Callable[[Op], Weight] = lambda _: Weight(1),
        unwanted: Callable[[Op, Out], None] = lambda _op, _out: None,
    ) -> None:
        self._flush = flush
        self._policy = policy
        self._weigh = weigh
        self._unwanted = unwanted
        self._waiting: deque[tuple[Op, Weight, asyncio.Future[Out]]] = deque()
        self._items = 0
        self._items_flushing = 0
        self._requests_flushing = 0
        self._rate = Rate(_LATELY_SECONDS)
        self._flushing = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: set[LateAnswer] = set()
        self._stopped = False

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._tasks or self._late)

    @property
    def pending(self) -> int:
        """Requests that wait, and flushes under way."""
        return len(self._waiting) + self._flushing

    @property
    def requests(self) -> int:
        """Requests that wait or are under way."""
        return len(self._waiting) + self._requests_flushing

    @property
    def items(self) -> int:
        """Of these."""
        return self._items + self._items_flushing

    def wait_seconds(self) -> float:
        """How long the next request would wait: what waits and is under way, by what was done lately. 0 while that is
        not known."""
        if not self._waiting:
            return 0.0
        return self._rate.seconds_for(self.items) or 0.0

    async def submit(self, op: Op) -> Out:
        """The outcome of `op`, which travels with whatever else waits."""
        if self._stopped:
            raise ShuttingDown("the broker is stopping")
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        weight = self._weigh(op)
        self._items += weight.items
        self._waiting.append((op, weight, future))
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
            weights = (weight for _, weight, _ in self._waiting)
            rate = self._rate.a_second
            count = self._policy.take(weights, items=self._items, running=self._flushing, rate=rate)
            batch = [self._waiting.popleft() for _ in range(count)]
            items = sum(weight.items for _, weight, _ in batch)
            self._items -= items
            # Only a flush that left some behind says what can be done: a smaller one could have taken more.
            full = bool(self._waiting)
            self._fire()
            batch = [entry for entry in batch if not entry[2].cancelled()]
            if not batch:
                continue
            outcomes: Sequence[Out | Exception | LateAnswer]
            if not self._flushing:
                self._rate.resume(perf_counter())
            self._flushing += 1
            self._items_flushing += items
            self._requests_flushing += len(batch)
            try:
                outcomes = await self._flush([op for op, _, _ in batch])
            except Exception as error:  # the boundary of a flush: its callers get it
                outcomes = [error] * len(batch)
            finally:
                self._flushing -= 1
                self._items_flushing -= items
                self._requests_flushing -= len(batch)
                if full:
                    self._rate.did(items, perf_counter())
                else:
                    self._rate.resume(perf_counter())
            for (op, _, future), outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, asyncio.Future):
                    self._late.add(outcome)
                    outcome.add_done_callback(partial(self._answer_late, op, future))
                else:
                    self._answer(op, future, outcome)

    def _answer_late(self, op: Op, future: asyncio.Future[Out], outcome: LateAnswer) -> None:
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
