"""The idempotency key of a message: what others know a repeat of its side effects by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from fairlane.model.message import Message, PushItem

KEY_HEADER = "idempotency-key"
REPLAY_HEADER = "replay-of"
"""Of a dead letter that was pushed again: the transactionId of the message that it was first."""

# A key is signed together with other things, told apart by dots, and is sent in a header, which takes no line break.
_SENDABLE = re.compile(r"[!-\-/-~]{1,255}")


def idempotency_key(queue: str, partition: str, transaction_id: str, headers: Mapping[str, str] | None) -> str:
    """The header `idempotency-key` of the message, or else a hash of what names it. The same at every attempt, in a
    worker and in a broker, and for a dead letter that is replayed."""
    for name, value in (headers or {}).items():
        if name.lower() == KEY_HEADER and value:
            return sendable(value)
    return _hash("\0".join((queue, partition, _first_id(transaction_id, headers))))


def replayed(message: Message[Any], queue: str, partition: str, payload: bytes | None = None) -> PushItem:
    """A message to push again, with another payload if there is one: it names the one that it was first, and so keeps
    its key."""
    return PushItem(
        queue=queue,
        partition=partition,
        payload=payload or bytes(message.raw),
        trace_id=message.trace_id,
        type=message.type,
        headers={**(message.headers or {}), REPLAY_HEADER: _first_id(message.transaction_id, message.headers)},
        max_attempts=message.max_attempts,
        priority=message.priority,
        producer_sub=message.producer_sub,
    )


def _first_id(transaction_id: str, headers: Mapping[str, str] | None) -> str:
    return (headers or {}).get(REPLAY_HEADER) or transaction_id


def sendable(key: str) -> str:
    """The key itself, or its hash if it could not be sent as it is."""
    return key if _SENDABLE.fullmatch(key) else _hash(key)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
