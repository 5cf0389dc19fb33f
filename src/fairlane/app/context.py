"""What a handler may know of its message, and do beside handling it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import MutableMapping, Sequence
from typing import Any

import msgspec

from fairlane.app.calls import Calls, Outbound
from fairlane.client.message import Message
from fairlane.client.pushes import item_of
from fairlane.client.wire import Item
from fairlane.model.names import DEFAULT_PARTITION

KEY_HEADER = "idempotency-key"
_canonical = msgspec.json.Encoder(order="deterministic").encode


class Context:
    """Of one message, or of one batch, whose first message is `message`."""

    def __init__(self, messages: Sequence[Message[Any]], outbound: Outbound | None = None) -> None:
        self.messages = messages
        self.message = messages[0]
        self.cancelled = False
        """The lease is lost, so that what the handler does is in vain. A coroutine is cancelled as well; a plain
        function can look here."""
        self.pushed: list[Item] = []
        self._outbound = outbound
        self._key: str | None = None

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
        """For side effects: the header `idempotency-key` of the message, or else the SHA-256 of its type (its queue
        if it has none) and its data, whatever the order of the keys in it. The same at every attempt."""
        if self._key is None:
            self._key = idempotency_key(self.message)
        return self._key

    def push(
        self,
        queue: str,
        data: Any,
        *,
        partition: str = DEFAULT_PARTITION,
        transaction_id: str | None = None,
        type: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Push a message in the transaction that acks this one: both happen, or neither. Nothing is pushed if the
        handler fails, or asks for the message to come again. The trace goes on in the new message."""
        trace = self.message.trace_id
        self.pushed.append(item_of(queue, data, partition, transaction_id, trace, type, headers))

    @property
    def http(self) -> Calls:
        """Calls to other services, each with this message's idempotency key and correlation id in its headers."""
        if self._outbound is None:
            raise RuntimeError("this context belongs to no worker, and can make no calls")
        return Calls(self._outbound, {"Idempotency-Key": self.idempotency_key, "X-Correlation-Id": self.correlation_id})

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


def idempotency_key(message: Message[Any]) -> str:
    for name, value in (message.headers or {}).items():
        if name.lower() == KEY_HEADER and value:
            return value
    kind = message.type or message.queue
    return hashlib.sha256(_canonical([kind, msgspec.json.decode(message.raw)])).hexdigest()
