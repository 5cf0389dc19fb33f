"""Consumers of a client: run a handler for the messages of a queue."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from fairlane.errors import InvalidRequest
from fairlane.model.batch import Batch
from fairlane.model.lease import ReadOptions
from fairlane.model.limits import BATCH_ITEMS_MAX, COUNT_MAX, LEASE_SECONDS_MAX
from fairlane.model.message import Message
from fairlane.model.names import QUEUE_MODE, check_count
from fairlane.model.verdict import Verdict, ack_for
from fairlane.otel import tracing
from fairlane.runtime.claim import Claim
from fairlane.runtime.consumer import Consumer
from fairlane.runtime.handling import Handled, Handling, Verbs, one_each
from fairlane.runtime.threads import call_in

T = TypeVar("T")

Answer = Verdict | None
MessageHandler = Callable[[Message[T]], Answer | Awaitable[Answer]]
"""A handler of one message. A function that is not a coroutine function runs in a thread."""
Answers = Sequence[Answer] | None


class Batched(Generic[T]):
    """A handler that takes a whole batch: `consume("orders", Batched(handle), batch=100)`.

    It returns None when all messages are done, or one verdict per message. When it raises, the failed attempt counts
    for the first message of each lane.
    """

    def __init__(self, handler: Callable[[Batch[T]], Answers | Awaitable[Answers]]) -> None:
        self.handler = handler


AnyHandler = MessageHandler[T] | Batched[T]


class ConsumeOptions(ReadOptions, total=False):
    """Options of a consumer. The messages of one pop are handled one after another."""

    concurrency: int
    """Number of batches handled at the same time, 1 by default. Concurrent batches are never from the same lane."""
    auto_renew: bool
    """Renew leases while a handler runs, however long it takes. True by default."""
    limit: int | None
    """Stop after this many messages."""
    idle_seconds: float | None
    """Stop after this many seconds without a message."""


class ConsumerHandling(Handling):
    """Runs a client's handler. The messages of one pop are handled one after another."""

    log = logging.getLogger("fairlane.client")
    retries_acks = False

    def __init__(self, handler: AnyHandler[Any], *, batch: int, partitions: int, concurrency: int) -> None:
        self.whole_batches = isinstance(handler, Batched)
        self._handler: Callable[[Any], Any] = handler.handler if isinstance(handler, Batched) else handler
        if not callable(self._handler):
            raise InvalidRequest(f"a handler must be callable, not {type(self._handler).__name__}")
        self.concurrency = concurrency
        self._asks = batch, partitions
        self._traced = tracing.spans() is not None
        self._threads = None if is_coroutine(self._handler) else ThreadPoolExecutor(concurrency, "fairlane-handler")

    def next_pop_size(self, consumer: Consumer) -> tuple[int, int]:
        return self._asks

    def slot_each(self, *, ordered: bool) -> bool:
        return False

    def parts(self, claim: Claim) -> Iterable[deque[Any]]:
        return [deque(claim.batch)]

    async def handle(self, claim: Claim, messages: list[Any]) -> Handled:
        given = claim.batch if self.whole_batches else messages[0]
        if self._threads is None:
            answer = await self._handler(given)
        else:
            call = partial(self._handler, given)
            if self._traced:  # a thread starts with an empty context
                call = partial(copy_context().run, call)
            answer = await call_in(self._threads, call)
        if answer is not None and inspect.isawaitable(answer):
            answer = await answer
        if not self.whole_batches:
            return Handled([ack_for(messages[0], self.accepted(answer, self._handler))])
        answers = [self.accepted(one, self._handler) for one in one_each(answer, len(messages))]
        return Handled([ack_for(message, one) for message, one in zip(messages, answers, strict=True)])

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False)


def is_coroutine(function: Any) -> bool:
    called = getattr(type(function), "__call__", None)  # noqa: B004  # looked at, not tested for
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def consumer_of(verbs: Verbs, queue: str, handler: AnyHandler[Any], type: Any, options: ConsumeOptions) -> Consumer:
    """Build a consumer that calls `handler`. Raises InvalidRequest for invalid options."""
    unknown = sorted(set(options) - ConsumeOptions.__optional_keys__)
    if unknown:
        raise InvalidRequest(f"a consumer has no option {unknown[0]!r:.80}")
    given: dict[str, Any] = {"group": QUEUE_MODE, **options}
    batch = check_count("batch", given.pop("batch", 1), least=1, most=BATCH_ITEMS_MAX)
    concurrency = check_count("concurrency", given.pop("concurrency", 1), least=1, most=BATCH_ITEMS_MAX)
    for name, least, most in (("lease_seconds", 1, LEASE_SECONDS_MAX), ("limit", 0, COUNT_MAX)):
        if given.get(name) is not None:
            check_count(name, given[name], least=least, most=most)
    if (idle := given.get("idle_seconds")) is not None and idle < 0:
        raise InvalidRequest(f"idle_seconds is {idle}; it must not be negative")
    handling = ConsumerHandling(handler, batch=batch, partitions=given.pop("partitions", 1), concurrency=concurrency)
    return Consumer(verbs, queue, handling, slots=concurrency, type=type, **given)
