"""The idempotency key of a message, by which other services recognize repeated side effects."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from fairlane.model.message import Message, PushItem

KEY_HEADER = "idempotency-key"
REPLAY_HEADER = "replay-of"
"""Header of a replayed dead letter: the transactionId of the original message."""

# A key is signed together with other fields, separated by dots, and sent in a header, which cannot hold a line break.
_SENDABLE = re.compile(r"[!-\-/-~]{1,255}")


def idempotency_key(queue: str, partition: str, transaction_id: str, headers: Mapping[str, str] | None) -> str:
    """Return the header `idempotency-key` of a message, or a hash of its queue, partition and id.

    The key is the same for every attempt, in workers and brokers, and for a replayed dead letter.
    """
    for name, value in (headers or {}).items():
        if name.lower() == KEY_HEADER and value:
            return sendable(value)
    return _hash("\0".join((queue, partition, _first_id(transaction_id, headers))))


def replayed(message: Message[Any], queue: str, partition: str, payload: bytes | None = None) -> PushItem:
    """Return a message to push again, with another payload if one is given.

    It names the original message, and so keeps its idempotency key.
    """
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
    """Return the key itself, or its hash if it cannot be sent in a header."""
    return key if _SENDABLE.fullmatch(key) else _hash(key)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
