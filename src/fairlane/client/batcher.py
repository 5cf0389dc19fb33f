"""Calls that wait while a request is in flight travel together in the next one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

Op = TypeVar("Op")
Out = TypeVar("Out")


class Weight(NamedTuple):
    items: int
    bytes: int = 0


_MOST = Weight(10_000, 8 * 1024 * 1024)  # the first is what a broker takes, the second what it decodes in a moment


class Batcher(Generic[Op, Out]):
    """`send` gets what waits, in order, and returns one outcome for each; an exception among them is that caller's.

    There is no timer: when nothing is in flight a call leaves at once. One request is in flight at a time, so that
    calls are carried out in the order they were made. Without `together` each call is a request of its own.
    """

    def __init__(
        self,
        send: Callable[[list[Op]], Awaitable[Sequence[Out | Exception]]],
        weigh: Callable[[Op], Weight],
        *,
        together: bool = True,
    ) -> None:
        self._send = send
        self._weigh = weigh
        self._together = together
        self._waiting: deque[tuple[Op, Weight, asyncio.Future[Out]]] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        return self._task is None

    async def submit(self, op: Op) -> Out:
        """The outcome of `op`. A caller that is cancelled before `op` left takes it back."""
        if not self._together:
            [outcome] = await self._send([op])
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        future: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((op, self._weigh(op), future))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._taken()
                if batch:
                    await self._carry(batch)
        finally:
            self._task = None
            for _, _, future in self._waiting:  # only when the loop is being torn down
                future.cancel()

    def _taken(self) -> list[tuple[Op, asyncio.Future[Out]]]:
        """From the front as much as fits one request, at least one; without those whose caller has gone."""
        batch: list[tuple[Op, asyncio.Future[Out]]] = []
        items = size = 0
        while self._waiting:
            op, weight, future = self._waiting[0]
            items += weight.items
            size += weight.bytes
            if batch and (items > _MOST.items or size > _MOST.bytes):
                break
            self._waiting.popleft()
            if not future.cancelled():
                batch.append((op, future))
        return batch

    async def _carry(self, batch: list[tuple[Op, asyncio.Future[Out]]]) -> None:
        outcomes: Sequence[Out | Exception]
        try:
            outcomes = await self._send([op for op, _ in batch])
        except Exception as error:  # the boundary of a request: its callers get it
            outcomes = [error] * len(batch)
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    async def drain(self) -> None:
        """Return when everything that waits was answered."""
        while self._task is not None:
            await asyncio.wait([self._task])
