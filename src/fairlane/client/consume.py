"""Consumers of a client: a handler for the messages of a queue."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from fairlane import tracing
from fairlane.errors import InvalidRequest
from fairlane.model.batch import Batch
from fairlane.model.lease import ReadOptions
from fairlane.model.limits import BATCH_ITEMS_MAX, COUNT_MAX, LEASE_SECONDS_MAX
from fairlane.model.message import Message
from fairlane.model.names import QUEUE_MODE, check_count
from fairlane.model.verdict import Verdict, settled
from fairlane.runtime.claim import Claim
from fairlane.runtime.consumer import Consumer
from fairlane.runtime.handling import Handled, Handling, Verbs, one_each
from fairlane.runtime.threads import call_in

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


class ConsumeOptions(ReadOptions, total=False):
    """Options of a consumer. Messages of one pop are handled one after another."""

    concurrency: int
    """Batches that are handled at the same time, 1 unless told otherwise. Two are never of the same lane."""
    auto_renew: bool
    """Keep leases while a handler runs, however long. So it is unless told otherwise."""
    limit: int | None
    """Stop after so many messages."""
    idle_seconds: float | None
    """Stop when nothing came for so long."""


class Calls(Handling):
    """Calls of a client's handler. The messages of a pop are handled one after another."""

    log = logging.getLogger("fairlane.client")
    patient = False

    def __init__(self, handler: Handler[Any] | Batched[Any], *, batch: int, partitions: int, concurrency: int) -> None:
        self.whole = isinstance(handler, Batched)
        self._handler: Callable[[Any], Any] = handler.handler if isinstance(handler, Batched) else handler
        if not callable(self._handler):
            raise InvalidRequest(f"a handler is called with a message; {type(self._handler).__name__} cannot be")
        self.concurrency = concurrency
        self._asks = batch, partitions
        self._traced = tracing.spans() is not None
        self._threads = None if is_coroutine(self._handler) else ThreadPoolExecutor(concurrency, "fairlane-handler")

    def asks(self, consumer: Consumer) -> tuple[int, int]:
        return self._asks

    def slot_each(self, *, ordered: bool) -> bool:
        return False

    def parts(self, claim: Claim) -> Iterable[deque[Any]]:
        return [deque(claim.batch)]

    async def handle(self, claim: Claim, messages: list[Any]) -> Handled:
        given = claim.batch if self.whole else messages[0]
        if self._threads is None:
            answer = await self._handler(given)
        else:
            call = partial(self._handler, given)
            if self._traced:  # a thread has a context of its own
                call = partial(copy_context().run, call)
            answer = await call_in(self._threads, call)
        if answer is not None and inspect.isawaitable(answer):
            answer = await answer
        if not self.whole:
            return Handled([settled(messages[0], self.accepted(answer, self._handler))])
        answers = [self.accepted(one, self._handler) for one in one_each(answer, len(messages))]
        return Handled([settled(message, one) for message, one in zip(messages, answers, strict=True)])

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False)


def is_coroutine(function: Any) -> bool:
    called = getattr(type(function), "__call__", None)  # noqa: B004  # looked at, not tested for
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def consumer_of(
    verbs: Verbs, queue: str, handler: Handler[Any] | Batched[Any], type: Any, options: ConsumeOptions
) -> Consumer:
    """A consumer that asks `verbs` and calls `handler`. InvalidRequest for options that make no sense."""
    unknown = sorted(set(options) - ConsumeOptions.__optional_keys__)
    if unknown:
        raise InvalidRequest(f"unknown option {unknown[0]!r:.80} of a consumer")
    given: dict[str, Any] = {"group": QUEUE_MODE, **options}
    batch = check_count("batch", given.pop("batch", 1), least=1, most=BATCH_ITEMS_MAX)
    concurrency = check_count("concurrency", given.pop("concurrency", 1), least=1, most=BATCH_ITEMS_MAX)
    for name, least, most in (("lease_seconds", 1, LEASE_SECONDS_MAX), ("limit", 0, COUNT_MAX)):
        if given.get(name) is not None:
            check_count(name, given[name], least=least, most=most)
    if (idle := given.get("idle_seconds")) is not None and idle < 0:
        raise InvalidRequest(f"idle_seconds is {idle}; it must not be negative")
    calls = Calls(handler, batch=batch, partitions=given.pop("partitions", 1), concurrency=concurrency)
    return Consumer(verbs, queue, calls, room=concurrency, type=type, **given)
