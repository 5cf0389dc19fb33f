"""Consume: a handler for the messages of a queue."""

from __future__ import annotations

from typing import Any, TypedDict, TypeVar, Unpack, overload

from fairlane.client.consumer import Consumer, Verbs
from fairlane.client.handlers import Batched, Handler, Handling
from fairlane.client.poller import Consuming
from fairlane.errors import InvalidRequest
from fairlane.model.group import Subscription

T = TypeVar("T")


class ConsumeOptions(TypedDict, total=False):
    """The fields of `Consuming`, which says what they mean and what they are by default."""

    group: str
    partition: str | None
    batch: int
    partitions: int
    concurrency: int
    lease_seconds: int | None
    auto_renew: bool
    subscription: Subscription
    limit: int | None
    idle_seconds: float | None


class Consumers(Verbs):
    @overload
    async def consume(
        self, queue: str, handler: Handler[T] | Batched[T], *, type: type[T], **options: Unpack[ConsumeOptions]
    ) -> int: ...
    @overload
    async def consume(
        self, queue: str, handler: Handler[Any] | Batched[Any], *, type: Any = ..., **options: Unpack[ConsumeOptions]
    ) -> int: ...
    async def consume(
        self, queue: str, handler: Handler[Any] | Batched[Any], *, type: Any = Any, **options: Unpack[ConsumeOptions]
    ) -> int:
        """Give the messages of a queue to `handler`, one by one, until the limit or idleness, if there is one; how
        many it was given.

        What it returns is a verdict: None or `Done` finishes a message, `Fail` or an exception is a failed attempt,
        `Retry` asks for it again later, `Dead` makes it a dead letter. Cancel it to end it at once; `consumer` gives
        an object that can be stopped gracefully.
        """
        return await self.consumer(queue, handler, type=type, **options).run()

    @overload
    def consumer(
        self, queue: str, handler: Handler[T] | Batched[T], *, type: type[T], **options: Unpack[ConsumeOptions]
    ) -> Consumer: ...
    @overload
    def consumer(
        self, queue: str, handler: Handler[Any] | Batched[Any], *, type: Any = ..., **options: Unpack[ConsumeOptions]
    ) -> Consumer: ...
    def consumer(
        self, queue: str, handler: Handler[Any] | Batched[Any], *, type: Any = Any, **options: Unpack[ConsumeOptions]
    ) -> Consumer:
        """The same as an object: `async with client.consumer(...)`, or `await consumer.run()` and `consumer.stop()`."""
        unknown = sorted(set(options) - set(Consuming.__struct_fields__))
        if unknown:
            raise InvalidRequest(f"unknown option {unknown[0]!r:.80} of a consumer")
        how = Consuming(queue=queue, type=type, **options).check()
        return Consumer(self, how, Handling(handler, concurrency=how.concurrency))
