"""Steps of a transaction as checked values: messages to push, acks, and transactions of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import msgspec

from fairlane.broker.transact import AckStep, Outcome, Step
from fairlane.model.message import OPTIONS, Message, PushItem, PushOptions, check_options, check_payload
from fairlane.model.outcome import AckStatus
from fairlane.model.payload import json_of
from fairlane.model.verdict import ack_item


class Transaction:
    """Steps that are being collected. `outcomes` is set after the commit."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.outcomes: list[Outcome] = []

    def push(self, queue: str, data: Any, **options: Unpack[PushOptions]) -> None:
        self.steps.append(item_of(queue, data, options))

    def ack(
        self,
        messages: Message[Any] | Sequence[Message[Any]],
        status: AckStatus = "completed",
        *,
        error: str | None = None,
        result: Any = msgspec.UNSET,
    ) -> None:
        for message in [messages] if isinstance(messages, Message) else messages:
            self.steps.append(AckStep(ack_item(message, status, error, None, result), message.group))


def item_of(queue: str, data: Any, options: PushOptions, allowed: frozenset[str] = OPTIONS) -> PushItem:
    check_options(options, allowed)
    return PushItem(queue=queue, payload=encoded("the data", data), **options)


def encoded(what: str, value: Any) -> bytes:
    """Return `value` as JSON, after checking raw parts and the depth of nesting."""
    encoded = json_of(what, value)
    check_payload(encoded)
    return encoded
