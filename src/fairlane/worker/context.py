"""The context of a handler: data about its message, and effects that belong to it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from fairlane.client.pushes import item_of
from fairlane.client.transactions import fan_in_step
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.decoding import decoder_of
from fairlane.model.fan_in import FanInMessage, FanInOptions
from fairlane.model.idempotency import idempotency_key
from fairlane.model.limits import PROGRESS_CHARS_MAX
from fairlane.model.message import Message, PushOptions
from fairlane.model.payload import json_of
from fairlane.otel import tracing
from fairlane.outbound.reply import Reply
from fairlane.runtime.claim import Claim
from fairlane.runtime.threads import call_in, outcome
from fairlane.sql import complete
from fairlane.wire.push import Item
from fairlane.wire.transactions import TransactionStep

if TYPE_CHECKING:
    from fairlane.worker.executor import HandlerExecutor

T = TypeVar("T")

_canonical = msgspec.json.Encoder(order="deterministic").encode


class Context:
    """The context of one message, or of one batch. `message` is the first message of the batch."""

    def __init__(
        self, messages: Sequence[Message[Any]], executor: HandlerExecutor | None = None, claim: Claim | None = None
    ) -> None:
        self.messages = messages
        self.message = messages[0]
        self.pushed: list[Item | TransactionStep] = []
        self.completed = False
        """True if the handler finished the messages in its own transaction."""
        self.overdue = False
        """True if the handler has exceeded its time limit."""
        self._executor = executor
        self._claim = claim

    @property
    def cancelled(self) -> bool:
        """True if the result will be ignored: the message was cancelled, the lease is lost or the time limit is over.

        Coroutines are cancelled; a plain function can check this property.
        """
        claim = self._claim
        return self.overdue or (claim is not None and (claim.cancelled or all(map(claim.has_cancelled, self.messages))))

    @property
    def attempt(self) -> int:
        """The number of this attempt. The first is 1."""
        return self.message.failed_attempts + 1

    @property
    def lease(self) -> str:
        return self.message.lease

    @property
    def correlation_id(self) -> str:
        """The trace id of the message, or its transactionId. The same at every attempt."""
        return self.message.trace_id or self.message.transaction_id

    @property
    def idempotency_key(self) -> str:
        """A key for side effects, the same at every attempt.

        It is the message's header `idempotency-key`, or a hash of queue, partition and transactionId. Commands that the
        broker runs send the same key.
        """
        message = self.message
        return idempotency_key(message.queue, message.partition, message.transaction_id, message.headers)

    @property
    def content_hash(self) -> str:
        """The SHA-256 of the message's type (or queue) and data, independent of the order of JSON keys."""
        message = self.message
        kind = message.type or message.queue
        return hashlib.sha256(_canonical([kind, msgspec.json.decode(message.raw)])).hexdigest()

    def push(self, queue: str, data: Any, **options: Unpack[PushOptions]) -> None:
        """Push a message in the transaction that acks this one.

        Nothing is pushed if the handler fails or asks for a retry. The new message continues the trace.
        """
        if self.completed:
            raise InvalidRequest(
                "complete() finished this message, so nothing can be pushed with its ack; use enqueue()"
            )
        options.setdefault("trace_id", self.message.trace_id)
        item = item_of(queue, data, options)
        tracing.add_context([item], tracing.context_for_next(self.message.headers))
        self.pushed.append(item)

    def fan_in(self, parts: Sequence[FanInMessage], then: FanInMessage, **options: Unpack[FanInOptions]) -> str:
        """Push messages in the transaction that acks this one, and `then` once after the ends of all of them.

        Each is `(queue, data)` or `(queue, data, options)`. The callback has the results and failures of the parts.
        Returns the id of the fan-in.
        """
        step = fan_in_step(parts, then, options)
        items = [*(step.items or ()), *([step.then] if step.then else ())]
        for item in items:
            item.trace_id = item.trace_id or self.message.trace_id
        tracing.add_context(items, tracing.context_for_next(self.message.headers))
        self.pushed.append(step)
        return str(step.id)

    def progress(self, fraction: float, text: str = "") -> None:
        """Report how far this handler is: a number from 0 to 1, and a text for people.

        The worker sends the latest report of each message, at most once a second. It is shown with the message until
        the handler ends. May be called from any thread.
        """
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise InvalidRequest(f"progress is {fraction!r:.80}; it must be a number from 0 to 1")
        if not isinstance(text, str) or len(text) > PROGRESS_CHARS_MAX:
            raise InvalidRequest(f"the text of a progress must be a string of at most {PROGRESS_CHARS_MAX} characters")
        if self._claim is not None and self._claim.on_progress is not None:
            self._claim.on_progress(self._claim, self.messages, fraction, text)

    def complete(self, connection: Any) -> Any:
        """Finish the message in the transaction of a connection, as `fairlane.sql.complete` does.

        Await it if the connection is asynchronous. The worker then sends no ack for success. If the transaction is
        rolled back and the handler raises, the attempt failed as usual.
        """
        if self.pushed:
            raise InvalidRequest(
                "push() and fan_in() need the ack of the worker; use enqueue() in the transaction of complete()"
            )
        self.completed = True
        if self._claim is not None:
            self._claim.exact = True
        return complete(connection, self.messages)

    @property
    def http(self) -> HttpCalls:
        """An HTTP client that sends this message's idempotency key and correlation id in every request."""
        ids = {"Idempotency-Key": self.idempotency_key, "X-Correlation-Id": self.correlation_id}
        return HttpCalls(self._require_executor(), {**ids, **tracing.context_for_next(self.message.headers)})

    async def once(
        self, name: str, work: Callable[[], Awaitable[Any]], *, key: str | None = None, type: Any = Any
    ) -> Any:
        """Run `work` once for this message and return its result, also at later attempts.

        The broker stores the result for this group, under the idempotency key and `name`. With your own `key`, for
        example `content_hash`, it runs once for all messages of the partition with that key. If the worker dies after
        `work` and before the result is stored, `work` runs again: the services that it calls should check the key too.
        """
        decode = decoder_of(type)
        effects, partition = self._require_executor().effects, self.message.partition_id
        named = "\0".join((str(partition), self.message.group, key or self.idempotency_key, name))
        effect_key = hashlib.sha256(named.encode()).hexdigest()
        effect = await effects.get(effect_key, partition)
        if effect is None:
            effect = await effects.keep(effect_key, partition, json_of("the result", await work()))
        return decode(effect)

    def once_blocking(self, name: str, work: Callable[[], Any], *, key: str | None = None, type: Any = Any) -> Any:
        """Run `once` from a plain function, which runs in a thread."""

        async def called() -> Any:
            thread = ThreadPoolExecutor(1, "fairlane-once")
            try:
                return await call_in(thread, copy_context().run, work)
            finally:
                thread.shutdown(wait=False)

        return _wait_on(self._require_executor().loop, self.once(name, called, key=key, type=type))

    def _require_executor(self) -> HandlerExecutor:
        if self._executor is None:
            raise RuntimeError("this context belongs to no worker, so it cannot call the broker or other services")
        return self._executor

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds `correlation_id` to every record and message."""
        return _CorrelatedLogger(_logger, {"correlation_id": self.correlation_id})


class _CorrelatedLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        extra = self.extra or {}
        kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return f"{msg} [{extra.get('correlation_id')}]", kwargs


_logger = logging.getLogger("fairlane.app")


class HttpCalls:
    """An HTTP client for coroutine functions. `blocking` is the same for plain functions.

    It retries 429, 5xx and broken connections after 200, 400, 800 ms and so on, or when the server asks for it. The
    last response is returned whatever its status. `raise_for_status` turns an error into a failed attempt.
    """

    def __init__(self, executor: HandlerExecutor, headers: Mapping[str, str]) -> None:
        self._executor = executor
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
        """Send a request and return the response. `json` is sent as the body.

        Raises Unavailable if no response came at all.
        """
        sent = {**self._headers, **(headers or {})}
        if json is not msgspec.UNSET:
            body = json_of("the body", json)
            sent.setdefault("Content-Type", "application/json")
        return await self._executor.outbound.send(method, url, headers=sent, body=body)

    async def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> Reply:
        return await self.request("GET", url, headers=headers)

    async def post(self, url: str, *, json: Any = msgspec.UNSET, headers: Mapping[str, str] | None = None) -> Reply:
        return await self.request("POST", url, json=json, headers=headers)

    @property
    def blocking(self) -> BlockingHttpCalls:
        return BlockingHttpCalls(self, self._executor.loop)


class BlockingHttpCalls:
    """An HTTP client for functions that run in threads."""

    def __init__(self, calls: HttpCalls, loop: asyncio.AbstractEventLoop) -> None:
        self._calls = calls
        self._loop = loop

    def request(self, method: str, url: str, **options: Any) -> Reply:
        return _wait_on(self._loop, self._calls.request(method, url, **options))

    def get(self, url: str, **options: Any) -> Reply:
        return self.request("GET", url, **options)

    def post(self, url: str, **options: Any) -> Reply:
        return self.request("POST", url, **options)


def _wait_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the handlers' loop and block the calling thread until it returns."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        work.close()
        raise FairlaneError("a blocking call would block the event loop; await the asynchronous form instead")
    value, error = asyncio.run_coroutine_threadsafe(outcome(work), loop).result()
    if error is not None:
        raise error
    return value  # type: ignore[return-value]
