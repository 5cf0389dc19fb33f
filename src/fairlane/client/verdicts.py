"""Verdicts: what a handler says of a message."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.client.acks import ack_item
from fairlane.client.message import Message
from fairlane.model.outcome import AckItem


class Done(msgspec.Struct, frozen=True):
    """Finished; the same as returning None. `result` is kept with the ack."""

    result: Any = msgspec.UNSET


class Fail(msgspec.Struct, frozen=True):
    """A failed attempt; the same as raising. The message comes again, or is dead-lettered after its last attempt."""

    error: str
    after: float | None = None
    """Seconds until it comes again, instead of the queue's backoff."""


class Retry(msgspec.Struct, frozen=True):
    """Not now: the message comes again after so many seconds, and no attempt is charged."""

    after: float | None = None


class Dead(msgspec.Struct, frozen=True):
    """A dead letter, at once: the message is given up on."""

    error: str


Verdict = Done | Fail | Retry | Dead


def item_for(message: Message[Any], verdict: object) -> AckItem:
    """The verdict as an ack; whatever else a handler returned means that it is done."""
    if type(verdict) is Done and verdict.result is msgspec.UNSET:  # as nearly always, and nothing of it can be wrong
        return ack_item(message)
    match verdict:
        case Done(result):
            item = ack_item(message, result=result)
        case Fail(error, after):
            item = ack_item(message, "failed", str(error), _milliseconds(after))
        case Retry(after):
            item = ack_item(message, "retry", None, _milliseconds(after))
        case Dead(error):
            item = ack_item(message, "dlq", str(error))
        case _:
            item = ack_item(message)
    item.check()
    return item


def item_for_error(message: Message[Any], error: Exception) -> AckItem:
    text = str(error)
    return item_for(message, Fail(f"{type(error).__name__}: {text}" if text else type(error).__name__))


def comes_again(item: AckItem) -> bool:
    """Whether the message comes again, and with it all behind it in its lane."""
    return item.status in ("failed", "retry")


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(0, round(seconds * 1000))
