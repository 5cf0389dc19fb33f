"""Handlers: how one is called, and how its answer becomes acks."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from fairlane.client.message import Batch, Message
from fairlane.client.verdicts import Verdict, comes_again, item_for, item_for_error
from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId
from fairlane.model.outcome import AckItem

log = logging.getLogger("fairlane.client")

T = TypeVar("T")

Answer = Verdict | None
Handler = Callable[[Message[T]], Answer | Awaitable[Answer]]
"""Takes one message. One that is no coroutine function is called in a thread."""
Answers = Sequence[Answer] | None


class Batched(Generic[T]):
    """A handler that takes a whole batch: `consume("orders", Batched(handle), batch=100)`.

    It returns None when all are done, or one verdict for each message. When it raises, the attempt is charged to
    the first message of each lane.
    """

    def __init__(self, handler: Callable[[Batch[T]], Answers | Awaitable[Answers]]) -> None:
        self.handler = handler


class Handling:
    """The handler of a consumer, called for the messages of batches."""

    def __init__(self, handler: Handler[Any] | Batched[Any], *, concurrency: int) -> None:
        self._batched = isinstance(handler, Batched)
        self._handler: Callable[[Any], Any] = handler.handler if isinstance(handler, Batched) else handler
        if not callable(self._handler):
            raise InvalidRequest(f"a handler is called with a message; {type(self._handler).__name__} cannot be")
        self._threads = None if _is_async(self._handler) else ThreadPoolExecutor(concurrency, "fairlane-handler")

    async def verdicts(self, batch: Batch[Any], go_on: Callable[[], bool]) -> AsyncIterator[list[AckItem]]:
        """What to say of the messages, in order, as soon as it is known. Ends early when `go_on` says so.

        After a message that comes again the rest of its lane is left out: it comes again too.
        """
        if self._batched:
            yield await self._whole(batch)
            return
        given_back: set[PartitionId] = set()
        for message in batch:
            if not go_on():
                return
            if message.partition_id not in given_back:
                item = await self._one(message)
                if comes_again(item):
                    given_back.add(message.partition_id)
                yield [item]

    async def _one(self, message: Message[Any]) -> AckItem:
        try:
            return item_for(message, await self._call(message))
        except Exception as error:  # the handler's boundary: its failure is a verdict
            log.warning("handler failed on %r", message, exc_info=True)
            return item_for_error(message, error)

    async def _whole(self, batch: Batch[Any]) -> list[AckItem]:
        try:
            answers = await self._call(batch)
            if answers is None:
                answers = [None] * len(batch)
            if len(answers) != len(batch):
                raise InvalidRequest(f"the handler gave {len(answers)} verdicts for {len(batch)} messages")
            return [item_for(message, answer) for message, answer in zip(batch, answers, strict=True)]
        except Exception as error:  # the handler's boundary: its failure is a verdict
            log.warning(
                "handler failed on a batch of %d messages that begins with %r", len(batch), batch[0], exc_info=True
            )
            firsts = {message.partition_id: message for message in reversed(batch)}
            return [item_for_error(message, error) for message in firsts.values()]

    async def _call(self, given: Any) -> Any:
        if self._threads is None:
            return await self._handler(given)
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, given)
        return await answer if inspect.isawaitable(answer) else answer

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False)


def _is_async(handler: Callable[[Any], Any]) -> bool:
    called = getattr(type(handler), "__call__", None)  # noqa: B004  # looked at, not tested for
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)
