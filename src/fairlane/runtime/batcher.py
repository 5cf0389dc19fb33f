"""The batcher: requests that wait while a flush is under way travel together in the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar, cast

from fairlane.errors import ShuttingDown
from fairlane.runtime.rate import Rate

_LATELY_SECONDS = 2.0
"""What was done counts for about this long."""

Op = TypeVar("Op")
Out = TypeVar("Out")
LateAnswer = asyncio.Future[Any]
"""An outcome that is not there yet when its flush is over."""


class Weight(NamedTuple):
    items: int
    bytes: int = 0


class BatchPolicy(NamedTuple):
    """A flush fires at once while one of `flushes` is free; when all are busy, what arrives waits and goes together.

    There is no window: an idle broker adds no latency, and a busy one batches by itself, up to these bounds.
    """

    flushes: int = 1
    requests_max: int = 500
    items_max: int = 10_000
    bytes_max: int = 8 * 1024 * 1024
    share_items: int = 500
    """From this many items on, what waits is shared out over the free flushes: while the store works on one, the
    next is made ready. Fewer items gain more from travelling together."""
    seconds_max: float = 0.5
    """A flush takes about so long at most, by what was done lately: a slow store gets less at once."""

    def take(self, waiting: Iterable[Weight], *, items: int, running: int, rate: float = 0.0) -> int:
        """How many from the front make the next flush, of `items` that wait in all, beside `running` other flushes.
        `rate` is how many are done a second, 0 while that is not known.

        The first goes always: larger than the bounds, it is a flush of its own.
        """
        free = max(1, self.flushes - running)
        soon = int(rate * self.seconds_max) // self.flushes or self.items_max
        bound = max(self.share_items, min(self.items_max, soon, -(-items // free)))
        count = total = size = 0
        for weight in waiting:
            total += weight.items
            size += weight.bytes
            if count and (count >= self.requests_max or total > bound or size > self.bytes_max):
                break
            count += 1
        return count


class Batcher(Generic[Op, Out]):
    """A batcher: `flush` gets requests and returns one outcome for each, in order; an exception among them is that
    caller's alone.

    An exception that `flush` raises is everybody's. `unwanted` is told of outcomes whose caller has gone. Without
    `together` each request is a flush of its own.
    """

    def __init__(
        self,
        flush: Callable[[list[Op]], Awaitable[Sequence[Out | Exception | LateAnswer]]],
        policy: BatchPolicy,
        *,
        weigh: Callable[[Op], Weight] = lambda _: Weight(1),
        unwanted: Callable[[Op, Out], None] = lambda _op, _out: None,
        together: bool = True,
    ) -> None:
        self._flush = flush
        self._together = together
        self._policy = policy
        self._weigh = weigh
        self._unwanted = unwanted
        self.waiting: deque[tuple[Op, int, int, asyncio.Future[Out]]] = deque()
        """Requests, their items and bytes, and whom to answer."""
        self._items = 0
        self._items_flushing = 0
        self._requests_flushing = 0
        self._rate = Rate(_LATELY_SECONDS)
        self._flushing = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: set[LateAnswer] = set()
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def idle(self) -> bool:
        return not (self.waiting or self._flushing or self._late)

    @property
    def pending(self) -> int:
        """Requests that wait, and flushes under way."""
        return len(self.waiting) + self._flushing

    @property
    def requests(self) -> int:
        """Requests that wait or are under way."""
        return len(self.waiting) + self._requests_flushing

    @property
    def items(self) -> int:
        """Of these."""
        return self._items + self._items_flushing

    def wait_seconds(self) -> float:
        """How long the next request would wait: what waits and is under way, by what was done lately. 0 while that is
        not known."""
        if not self.waiting:
            return 0.0
        return self._rate.seconds_for(self.items) or 0.0

    async def submit(self, op: Op) -> Out:
        """The outcome of `op`, which travels with whatever else waits."""
        if not self._together and not self._stopped:
            [outcome] = await self._flush([op])
            if isinstance(outcome, Exception):
                raise outcome
            return cast(Out, outcome)
        future = self.put(op, *self._weigh(op))
        try:
            return await future
        except asyncio.CancelledError:
            # The outcome may be there already, and the caller be cancelled before it got its turn.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._unwanted(op, future.result())
            raise

    def put(self, op: Op, items: int = 1, bytes: int = 0) -> asyncio.Future[Out]:
        """The same of a caller who wants no outcome that comes when it has gone."""
        if self._stopped:
            raise ShuttingDown("the broker is stopping")
        if self._loop is None:  # asked for each time, it would ask the system for the process every time
            self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Out] = self._loop.create_future()
        self._items += items
        self.waiting.append((op, items, bytes, future))
        if len(self._tasks) < self._policy.flushes:
            self._fire()
        return future

    def _fire(self) -> None:
        task = asyncio.create_task(self._run())
        self._tasks.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self.waiting:
            return
        if task.cancelled():  # the loop is being torn down
            for *_, future in self.waiting:
                future.cancel()
        elif len(self._tasks) < self._policy.flushes:
            self._fire()

    async def _run(self) -> None:
        """One flush after another while something waits."""
        rate = self._rate
        while self.waiting:
            batch = [self.waiting.popleft()] if len(self.waiting) == 1 else self._take()
            items = sum([items for _, items, _, _ in batch])
            self._items -= items
            # Only a flush that left some behind says what can be done: a smaller one could have taken more.
            full = bool(self.waiting)
            if full and len(self._tasks) < self._policy.flushes:
                self._fire()
            batch = [entry for entry in batch if not entry[3].cancelled()]
            if not batch:
                continue
            outcomes: Sequence[Out | Exception | LateAnswer]
            now = perf_counter()
            if not self._flushing:
                if now - rate.at > _LATELY_SECONDS:
                    rate.forget()
                rate.at = now
            self._flushing += 1
            self._items_flushing += items
            self._requests_flushing += len(batch)
            try:
                outcomes = await self._flush([op for op, _, _, _ in batch])
            except Exception as error:  # the boundary of a flush: its callers get it
                outcomes = [error] * len(batch)
            except BaseException:  # the loop is being torn down: nobody is left without an answer
                for *_, future in batch:
                    future.cancel()
                raise
            finally:
                self._flushing -= 1
                self._items_flushing -= items
                self._requests_flushing -= len(batch)
                now = perf_counter()
                if full:
                    rate.did(items, now)
                elif now - rate.at > _LATELY_SECONDS:
                    rate.forget()
                rate.at = now
            for (op, _, _, future), outcome in zip(batch, outcomes, strict=True):
                if future.done() or isinstance(outcome, Exception | asyncio.Future):
                    self._answer(op, future, outcome)
                else:
                    future.set_result(outcome)

    def _take(self) -> list[tuple[Op, int, int, asyncio.Future[Out]]]:
        """The next flush, from the front."""
        weights = (Weight(items, bytes) for _, items, bytes, _ in self.waiting)
        count = self._policy.take(weights, items=self._items, running=self._flushing, rate=self._rate.a_second)
        return [self.waiting.popleft() for _ in range(count)]

    def _answer(self, op: Op, future: asyncio.Future[Out], outcome: Out | Exception | LateAnswer) -> None:
        """Answer late, with an error, or nobody."""
        if isinstance(outcome, asyncio.Future):
            self._late.add(outcome)
            outcome.add_done_callback(partial(self._answer_late, op, future))
        elif future.done():
            if not isinstance(outcome, Exception):
                self._unwanted(op, outcome)
        elif isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _answer_late(self, op: Op, future: asyncio.Future[Out], outcome: LateAnswer) -> None:
        self._late.discard(outcome)
        error = outcome.exception()
        self._answer(op, future, error if isinstance(error, Exception) else outcome.result())

    async def stop(self) -> None:
        """Take nothing new, answer everybody who waits."""
        self._stopped = True
        await self.drain()

    async def drain(self) -> None:
        """Return when everything that waits was answered."""
        while waiting := {*self._tasks, *self._late}:
            await asyncio.wait(waiting)
