"""The idempotency key of a message: what others know a repeat of its side effects by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

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


def replay_headers(transaction_id: str, headers: Mapping[str, str] | None) -> dict[str, str]:
    """The headers of a message that is pushed again: they name the one that it was first, and so keep its key."""
    return {**(headers or {}), REPLAY_HEADER: _first_id(transaction_id, headers)}


def _first_id(transaction_id: str, headers: Mapping[str, str] | None) -> str:
    return (headers or {}).get(REPLAY_HEADER) or transaction_id


def sendable(key: str) -> str:
    """The key itself, or its hash if it could not be sent as it is."""
    return key if _SENDABLE.fullmatch(key) else _hash(key)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
