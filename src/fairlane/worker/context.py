"""The context of a handler: what it may know of its message, and do beside handling it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from fairlane import tracing
from fairlane.client.pushes import item_of
from fairlane.errors import FairlaneError
from fairlane.model.idempotency import idempotency_key
from fairlane.model.message import Message, PushOptions
from fairlane.model.payload import json_of
from fairlane.outbound.caller import Reply
from fairlane.runtime.claim import Claim
from fairlane.runtime.threads import call_in, outcome
from fairlane.wire.push import Item

if TYPE_CHECKING:
    from fairlane.worker.stage import Stage

T = TypeVar("T")

_canonical = msgspec.json.Encoder(order="deterministic").encode


class Context:
    """Of one message, or of one batch, whose first message is `message`."""

    def __init__(
        self, messages: Sequence[Message[Any]], stage: Stage | None = None, claim: Claim | None = None
    ) -> None:
        self.messages = messages
        self.message = messages[0]
        self.pushed: list[Item] = []
        self.overdue = False
        """The handler is past its time limit."""
        self._stage = stage
        self._claim = claim

    @property
    def cancelled(self) -> bool:
        """The lease is lost or the time limit is over, so that what the handler does is in vain. A coroutine is
        cancelled as well; a plain function can look here."""
        return self.overdue or (self._claim is not None and self._claim.cancelled)

    @property
    def attempt(self) -> int:
        """1 at the first delivery, and one more after each failed attempt."""
        return self.message.failed_attempts + 1

    @property
    def lease(self) -> str:
        return self.message.lease

    @property
    def correlation_id(self) -> str:
        """The trace of the message, or else its transactionId: the same at every attempt."""
        return self.message.trace_id or self.message.transaction_id

    @property
    def idempotency_key(self) -> str:
        """For side effects: the header `idempotency-key` of the message, or else a hash of what names it (queue,
        partition, transactionId). The same at every attempt, and the one that the broker's own commands send."""
        message = self.message
        return idempotency_key(message.queue, message.partition, message.transaction_id, message.headers)

    @property
    def content_hash(self) -> str:
        """The SHA-256 of the type of the message (its queue if it has none) and its data, whatever the order of the
        keys in it: the same for every message that says the same."""
        message = self.message
        kind = message.type or message.queue
        return hashlib.sha256(_canonical([kind, msgspec.json.decode(message.raw)])).hexdigest()

    def push(self, queue: str, data: Any, **options: Unpack[PushOptions]) -> None:
        """Push a message in the transaction that acks this one: both happen, or neither. Nothing is pushed if the
        handler fails, or asks for the message to come again. The trace goes on in the new message."""
        options.setdefault("trace_id", self.message.trace_id)
        item = item_of(queue, data, options)
        tracing.give([item], tracing.onward(self.message.headers))
        self.pushed.append(item)

    @property
    def http(self) -> Calls:
        """Calls to other services, each with this message's idempotency key and correlation id in its headers."""
        ids = {"Idempotency-Key": self.idempotency_key, "X-Correlation-Id": self.correlation_id}
        return Calls(self._reach(), {**ids, **tracing.onward(self.message.headers)})

    async def once(
        self, name: str, work: Callable[[], Awaitable[Any]], *, key: str | None = None, type: Any = Any
    ) -> Any:
        """What `work` returned when an attempt of this message first came to it: the broker keeps it for this group
        under the idempotency key and this name, and `work` is not called again. Under a `key` of your own, for
        instance `content_hash`, it is done once for all messages of the partition that have the same. An attempt that
        dies between its end and the keeping does not count, so that what it calls should know the key as well."""
        effects, partition = self._reach().effects, self.message.partition_id
        named = "\0".join((str(partition), self.message.group, key or self.idempotency_key, name))
        effect_key = hashlib.sha256(named.encode()).hexdigest()
        effect = await effects.get(effect_key, partition)
        if effect is None:
            effect = await effects.keep(effect_key, partition, json_of("the result", await work()))
        return msgspec.json.decode(effect, type=type)

    def once_blocking(self, name: str, work: Callable[[], Any], *, key: str | None = None, type: Any = Any) -> Any:
        """`once` for plain functions, which run in threads."""

        async def called() -> Any:
            thread = ThreadPoolExecutor(1, "fairlane-once")
            try:
                return await call_in(thread, copy_context().run, work)
            finally:
                thread.shutdown(wait=False)

        return _wait_on(self._reach().loop, self.once(name, called, key=key, type=type))

    def _reach(self) -> Stage:
        if self._stage is None:
            raise RuntimeError("this context belongs to no worker, and can reach nobody")
        return self._stage

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Each record has `correlation_id`, and says it."""
        return _Log(_logger, {"correlation_id": self.correlation_id})


class _Log(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        extra = self.extra or {}
        kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return f"{msg} [{extra.get('correlation_id')}]", kwargs


_logger = logging.getLogger("fairlane.app")


class Calls:
    """HTTP for coroutine functions; `blocking` is the same for plain ones.

    429, 5xx and broken connections are tried again after 200, 400, 800 ms ... or as long as the server
    asks for; the last answer is returned whatever it says. `raise_for_status` makes a bad one a failed attempt.
    """

    def __init__(self, stage: Stage, headers: Mapping[str, str]) -> None:
        self._stage = stage
        self._headers = headers

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: Any = msgspec.UNSET,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One call; `json` is sent as the body. Raises Unavailable when no answer came at all."""
        sent = {**self._headers, **(headers or {})}
        if json is not msgspec.UNSET:
            body = json_of("the body", json)
            sent.setdefault("Content-Type", "application/json")
        return await self._stage.caller.send(method, url, headers=sent, body=body)

    async def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> Reply:
        return await self.request("GET", url, headers=headers)

    async def post(self, url: str, *, json: Any = msgspec.UNSET, headers: Mapping[str, str] | None = None) -> Reply:
        return await self.request("POST", url, json=json, headers=headers)

    @property
    def blocking(self) -> BlockingCalls:
        return BlockingCalls(self, self._stage.loop)


class BlockingCalls:
    """For functions that run in threads."""

    def __init__(self, calls: Calls, loop: asyncio.AbstractEventLoop) -> None:
        self._calls = calls
        self._loop = loop

    def request(self, method: str, url: str, **options: Any) -> Reply:
        return _wait_on(self._loop, self._calls.request(method, url, **options))

    def get(self, url: str, **options: Any) -> Reply:
        return self.request("GET", url, **options)

    def post(self, url: str, **options: Any) -> Reply:
        return self.request("POST", url, **options)


def _wait_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns on the loop of the handlers, for a caller in a thread."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        work.close()
        raise FairlaneError("a blocking call would block the event loop; await the other form of it")
    value, error = asyncio.run_coroutine_threadsafe(outcome(work), loop).result()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]
