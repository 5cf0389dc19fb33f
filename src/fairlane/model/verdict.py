"""Verdicts: what a handler says of a message, and the ack that it becomes."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.model.limits import RESULT_BYTES_MAX
from fairlane.model.message import Message
from fairlane.model.outcome import AckItem, AckStatus
from fairlane.model.payload import json_of


class Done(msgspec.Struct, frozen=True):
    """Finished; the same as returning None. `result` is kept with the ack, as JSON of up to 64 KB; in the place of a
    larger one stands an object whose `omitted` says so."""

    result: Any = msgspec.UNSET


class Fail(msgspec.Struct, frozen=True):
    """A failed attempt; the same as raising. The message comes again, or is dead-lettered after its last attempt."""

    error: str
    after: float | None = None
    """Seconds until it comes again, instead of the queue's backoff."""


class Retry(msgspec.Struct, frozen=True):
    """Not now: the message comes again after so many seconds, and no attempt is charged."""

    after: float | None = None
    error: str | None = None


class Dead(msgspec.Struct, frozen=True):
    """A dead letter, at once: the message is given up on."""

    error: str


Verdict = Done | Fail | Retry | Dead


def failure(error: BaseException) -> Fail:
    """The verdict of a handler that raised."""
    text = str(error)
    return Fail(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def ack_item(
    message: Message[Any],
    status: AckStatus = "completed",
    error: str | None = None,
    delay_ms: int | None = None,
    result: Any = msgspec.UNSET,
) -> AckItem:
    """The ack of a message that a pop delivered."""
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


def settled(message: Message[Any], verdict: object) -> AckItem:
    """The ack that a verdict becomes, checked; whatever else a handler returned means that it is done."""
    match verdict:
        case Done(result) if result is not msgspec.UNSET:
            item = ack_item(message, result=result)
            if item.result is not None and len(item.result) > RESULT_BYTES_MAX:
                # The work is done. To fail the attempt would do it again, to the same end.
                text = f"the result has {len(item.result)} bytes; at most {RESULT_BYTES_MAX} are kept"
                item.result = json_of("the result", {"omitted": text})
        case Fail(error, after):
            item = ack_item(message, "failed", str(error), _milliseconds(after))
        case Retry(after, error):
            item = ack_item(message, "retry", error, _milliseconds(after))
        case Dead(error):
            item = ack_item(message, "dlq", str(error))
        case _:
            return ack_item(message)  # as nearly always, and nothing of it can be wrong
    item.check()
    return item


def comes_again(item: AckItem) -> bool:
    """Whether the message comes again, and with it all behind it in an ordered lane."""
    return item.status in ("failed", "retry")


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(0, round(seconds * 1000))
