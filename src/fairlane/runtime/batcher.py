"""The batcher: requests that arrive during a flush are combined in the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

from fairlane.errors import ShuttingDown
from fairlane.runtime.fair_queue import FairQueue
from fairlane.runtime.rate import RateEstimate

_LATELY_SECONDS = 2.0
"""Time span of the rate of recent flushes."""
_TURNS_SECONDS = 10.0
"""Time for which owners take turns after two of them alternated."""

Op = TypeVar("Op")
Out = TypeVar("Out")
Entry = tuple[Op, int, int, asyncio.Future[Out]]
"""A waiting request with its items, bytes and future."""
LateAnswer = asyncio.Future[Any]
"""Future of an outcome that is not known yet when its flush ends."""


async def decided_answer(answers: Sequence[Out | Exception], number: int, decided: Awaitable[None]) -> Out:
    """Wait until a request is decided, and return its answer. Raises the answer if it is an exception."""
    await decided
    answer = answers[number]
    if isinstance(answer, Exception):
        raise answer
    return answer


class Weight(NamedTuple):
    items: int
    bytes: int = 0


class BatchPolicy(NamedTuple):
    """Limits of batches.

    A flush starts at once while one of `flushes` is free. When all are busy, arriving requests wait and are flushed
    together. There is no time window: an idle broker adds no latency, and a busy one batches up to these limits.
    """

    flushes: int = 1
    requests_max: int = 500
    items_max: int = 10_000
    bytes_max: int = 8 * 1024 * 1024
    share_items: int = 500
    """Number of waiting items from which they are split over the free flushes.

    While the store works on one flush, the next is prepared. Fewer items gain more from being flushed together.
    """
    seconds_max: float = 0.5
    """Target duration of a flush, estimated from recent flushes. A slow store gets less at once."""
    turn_items: int = 50
    """Largest number of items while owners take turns.

    A flush of so few items takes about as long as one of a single item, so a request of one owner waits little for
    another.
    """

    def take(self, waiting: Iterable[Weight], *, items: int, running: int, rate: float = 0.0) -> int:
        """Return the number of requests for the next flush, of `items` waiting, beside `running` other flushes.

        `rate` is the number of items per second, 0 if it is unknown. The first request is always included: if it is
        larger than the limits, it is flushed alone.
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
    """A batcher. `flush` gets requests and returns one outcome for each, in order.

    An exception in the list is raised for its caller only; an exception that `flush` raises is raised for all.
    `unwanted` is called with outcomes whose caller has gone.
    """

    def __init__(
        self,
        flush: Callable[[list[Op]], Awaitable[Sequence[Out | Exception | LateAnswer]]],
        policy: BatchPolicy,
        *,
        unwanted: Callable[[Op, Out], None] = lambda _op, _out: None,
        owner: Callable[[Op], str] | None = None,
    ) -> None:
        """`owner` names who sent a request. Owners take turns, so that a flood of one does not delay another."""
        self._owner = owner
        self._last_owner: str | None = None
        self._turns_until = 0.0
        """Time until which owners take turns."""
        self._turns: FairQueue[Entry[Op, Out]] = FairQueue()
        """Requests that wait for their turn, before those in `waiting`. Empty with one owner."""
        self._turning = 0
        """Number of requests in `_turns`."""
        self._turned_at = float("-inf")
        """Time of the last flush that left requests in `_turns`."""
        self._flush = flush
        self._policy = policy
        self._flushes_max = policy.flushes
        """Number of concurrent flushes. While owners take turns it is one, so that a request waits for one of them."""
        self._unwanted = unwanted
        self.waiting: deque[Entry[Op, Out]] = deque()
        """Requests since the last flush began. With one owner, all waiting requests."""
        self._items = 0
        self._items_flushing = 0
        self._requests_flushing = 0
        self._rate = RateEstimate(_LATELY_SECONDS)
        self._flushing = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: set[LateAnswer] = set()
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def idle(self) -> bool:
        return not (self.waiting or self._turning or self._flushing or self._late)

    @property
    def pending(self) -> int:
        """Number of waiting requests and running flushes."""
        return len(self.waiting) + self._turning + self._flushing

    @property
    def requests(self) -> int:
        """Number of requests that wait or run."""
        return len(self.waiting) + self._turning + self._requests_flushing

    @property
    def items(self) -> int:
        """Number of items of these requests."""
        return self._items + self._items_flushing

    @property
    def takes_turns(self) -> bool:
        """True if requests waited for the turns of other owners lately."""
        return perf_counter() - self._turned_at < _TURNS_SECONDS

    def wait_seconds(self) -> float:
        """Estimated seconds until a new request would be flushed. 0 if the rate is unknown."""
        if not (self.waiting or self._turning):
            return 0.0
        return self._rate.seconds_for(self.items) or 0.0

    def wait_seconds_of(self, owner: str) -> float:
        """Estimated seconds until a new request of this owner would be flushed, as owners take turns."""
        of = self._owner
        if of is None or not (self.waiting or self._turning):
            return self.wait_seconds()
        owners, mine = {owner, *self._turns.owners()}, self._turns.items_of(owner)
        for op, items, _, _ in self.waiting:
            owners.add(whose := of(op))
            mine += items if whose == owner else 0
        ahead = min(self.items, mine * len(owners) + self._items_flushing)
        return self._rate.seconds_for(ahead) or 0.0

    async def submit(self, op: Op) -> Out:
        """Return the outcome of `op`, which is flushed together with other waiting requests."""
        future = self.put(op)
        try:
            return await future
        except asyncio.CancelledError:
            # The outcome may exist already, if the caller is cancelled just before it resumes.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._unwanted(op, future.result())
            raise

    def put(self, op: Op, items: int = 1, bytes: int = 0) -> asyncio.Future[Out]:
        """Queue `op` and return the future of its outcome, for a caller that ignores late outcomes."""
        if self._stopped:
            raise ShuttingDown("the broker is stopping")
        if self._loop is None:  # looked up once, because each lookup asks the system for the process id
            self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Out] = self._loop.create_future()
        self._items += items
        if self._owner is not None and (owner := self._owner(op)) != self._last_owner:
            self._alternate(owner)
        self.waiting.append((op, items, bytes, future))
        if len(self._tasks) < self._flushes_max:
            self._fire()
        return future

    def _alternate(self, owner: str) -> None:
        """Record that the owner changed. From the second owner on, owners take turns for a while."""
        if self._last_owner is not None:
            self._turns_until = perf_counter() + _TURNS_SECONDS
            self._flushes_max = 1
        self._last_owner = owner

    def _fire(self) -> None:
        task = asyncio.create_task(self._run())
        self._tasks.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not (self.waiting or self._turning):
            return
        if task.cancelled():  # the loop is being torn down
            for *_, future in (*self._turns.drain(), *self.waiting):
                future.cancel()
        elif len(self._tasks) < self._flushes_max:
            self._fire()

    async def _run(self) -> None:
        """Run one flush after another while requests wait."""
        rate = self._rate
        while (self.waiting or self._turning) and len(self._tasks) <= self._flushes_max:
            batch = [self.waiting.popleft()] if len(self.waiting) == 1 and not self._turning else self._take()
            items = sum([items for _, items, _, _ in batch])
            self._items -= items
            # Only a flush that left requests behind measures the rate: a smaller one could have taken more.
            full = bool(self.waiting or self._turning)
            if full and len(self._tasks) < self._flushes_max:
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
            except Exception as error:  # the boundary of a flush: its callers get the error
                outcomes = [error] * len(batch)
            except BaseException:  # the loop is shutting down: every caller gets an answer
                for *_, future in batch:
                    future.cancel()
                raise
            finally:
                self._flushing -= 1
                self._items_flushing -= items
                self._requests_flushing -= len(batch)
                now = perf_counter()
                if full:
                    rate.record(items, now)
                elif now - rate.at > _LATELY_SECONDS:
                    rate.forget()
                rate.at = now
            answers: Iterable[tuple[Entry[Op, Out], Any]] = zip(batch, outcomes, strict=True)
            if self._turns_until:  # small requests resume first, before larger ones and before the next flush
                answers = sorted(answers, key=lambda answer: answer[0][1])
            for (op, _, _, future), outcome in answers:
                if future.done() or isinstance(outcome, Exception | asyncio.Future):
                    self._answer(op, future, outcome)
                else:
                    future.set_result(outcome)
            if self._turns_until:
                await asyncio.sleep(0)

    def _take(self) -> list[Entry[Op, Out]]:
        """Remove the requests of the next flush."""
        if self._turns_until:
            if perf_counter() < self._turns_until:
                return self._take_turns()
            self.waiting.extendleft(reversed(list(self._turns.drain())))
            self._turns_until = self._turning = 0
            self._flushes_max = self._policy.flushes
        weights = (Weight(items, bytes) for _, items, bytes, _ in self.waiting)
        rate = self._rate.per_second
        count = self._policy.take(weights, items=self._items, running=self._flushing, rate=rate)
        return [self.waiting.popleft() for _ in range(count)]

    def _take_turns(self) -> list[Entry[Op, Out]]:
        """Remove the requests of a small flush, in which owners take turns."""
        turns, owner = self._turns, self._owner
        assert owner is not None
        while self.waiting:
            entry = self.waiting.popleft()
            turns.put(owner(entry[0]), entry, entry[1])
        batch: list[Entry[Op, Out]] = []
        total = size = 0
        while turns and len(batch) < self._policy.requests_max:
            _, items, bytes, _ = turns.first()
            total += items
            size += bytes
            if batch and (total > self._policy.turn_items or size > self._policy.bytes_max):
                break
            batch.append(turns.pop())
        self._turning = len(turns)
        if turns:
            self._turned_at = perf_counter()
        return batch

    def _answer(self, op: Op, future: asyncio.Future[Out], outcome: Out | Exception | LateAnswer) -> None:
        """Resolve a future with an outcome that is late or an error, or pass it to `unwanted`."""
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
        """Refuse new requests, and answer all waiting ones."""
        self._stopped = True
        await self.drain()

    async def drain(self) -> None:
        """Wait until all waiting requests are answered."""
        while waiting := {*self._tasks, *self._late}:
            await asyncio.wait(waiting)
