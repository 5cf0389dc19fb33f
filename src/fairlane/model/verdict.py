"""Verdicts of handlers on messages, and the acks for them."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.model.limits import RESULT_BYTES_MAX
from fairlane.model.message import Message
from fairlane.model.outcome import AckItem, AckStatus
from fairlane.model.payload import json_of
from fairlane.model.tracebacks import frames_of


class Done(msgspec.Struct, frozen=True):
    """The message is finished, as if the handler had returned None.

    `result` is stored with the ack, as JSON of up to 64 KB. A larger result is replaced by an object with `omitted`.
    """

    result: Any = msgspec.UNSET


class Fail(msgspec.Struct, frozen=True):
    """The attempt failed, as if the handler had raised.

    The message is retried, or dead-lettered after its last attempt.
    """

    error: str
    after: float | None = None
    """Seconds until the retry, instead of the queue's backoff."""
    traceback: str | None = None
    """Frames that are kept with the error: `tracebacks.frames_of(exception)`."""


class Retry(msgspec.Struct, frozen=True):
    """The message is delivered again after `after` seconds, without counting an attempt."""

    after: float | None = None
    error: str | None = None


class Dead(msgspec.Struct, frozen=True):
    """The message becomes a dead letter at once."""

    error: str
    traceback: str | None = None


Verdict = Done | Fail | Retry | Dead


def failure(error: BaseException) -> Fail:
    """Return the verdict for a handler that raised."""
    text = str(error)
    return Fail(f"{type(error).__name__}: {text}" if text else type(error).__name__, traceback=frames_of(error))


def ack_item(
    message: Message[Any],
    status: AckStatus = "completed",
    error: str | None = None,
    delay_ms: int | None = None,
    result: Any = msgspec.UNSET,
) -> AckItem:
    """Return the ack of a message that a pop delivered."""
    return AckItem(
        transaction_id=message.transaction_id,
        partition=message.partition_id,
        status=status,
        lease=message.lease or None,
        error=error,
        delay_ms=delay_ms,
        result=None if result is msgspec.UNSET else json_of("the result", result),
        position=None if message.position < 0 else message.position,
    )


def ack_for(message: Message[Any], verdict: object) -> AckItem:
    """Return the checked ack for a verdict. Any other value that a handler returns means done."""
    match verdict:
        case Done(result) if result is not msgspec.UNSET:
            item = ack_item(message, result=result)
            if item.result is not None and len(item.result) > RESULT_BYTES_MAX:
                # The work is done. Failing the attempt would repeat it, with the same result.
                text = f"the result has {len(item.result)} bytes; at most {RESULT_BYTES_MAX} are kept"
                item.result = json_of("the result", {"omitted": text})
        case Fail(error, after):
            item = ack_item(message, "failed", str(error), _milliseconds(after))
            item.traceback = verdict.traceback
        case Retry(after, error):
            item = ack_item(message, "retry", error, _milliseconds(after))
        case Dead(error):
            item = ack_item(message, "dlq", str(error))
            item.traceback = verdict.traceback
        case _:
            return ack_item(message)  # the common case: nothing needs a check
    item.check()
    return item


def is_redelivered(item: AckItem) -> bool:
    """Return True if the message is delivered again, with all messages after it in an ordered lane."""
    return item.status in ("failed", "retry")


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(0, round(seconds * 1000))
