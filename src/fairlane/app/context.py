"""The context of a handler: what it may know of its message, and do beside handling it."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Unpack

import msgspec

from fairlane.app.calls import Calls, Outbound, wait_on
from fairlane.client.pushes import item_of
from fairlane.model.idempotency import idempotency_key
from fairlane.model.message import Message, PushOptions
from fairlane.runtime.claim import Claim
from fairlane.wire.push import Item

_canonical = msgspec.json.Encoder(order="deterministic").encode


class Context:
    """Of one message, or of one batch, whose first message is `message`."""

    def __init__(
        self, messages: Sequence[Message[Any]], outbound: Outbound | None = None, claim: Claim | None = None
    ) -> None:
        self.messages = messages
        self.message = messages[0]
        self.pushed: list[Item] = []
        self._outbound = outbound
        self._claim = claim

    @property
    def cancelled(self) -> bool:
        """The lease is lost, so that what the handler does is in vain. A coroutine is cancelled as well; a plain
        function can look here."""
        return self._claim is not None and self._claim.cancelled

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
        self.pushed.append(item_of(queue, data, **options))

    @property
    def http(self) -> Calls:
        """Calls to other services, each with this message's idempotency key and correlation id in its headers."""
        return Calls(self._reach(), {"Idempotency-Key": self.idempotency_key, "X-Correlation-Id": self.correlation_id})

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
            effect = await effects.keep(effect_key, partition, msgspec.json.encode(await work()))
        return msgspec.json.decode(effect, type=type)

    def once_blocking(self, name: str, work: Callable[[], Any], *, key: str | None = None, type: Any = Any) -> Any:
        """`once` for plain functions, which run in threads."""

        async def called() -> Any:
            return await asyncio.to_thread(work)

        return wait_on(self._reach().loop, self.once(name, called, key=key, type=type))

    def _reach(self) -> Outbound:
        if self._outbound is None:
            raise RuntimeError("this context belongs to no worker, and can reach nobody")
        return self._outbound

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
