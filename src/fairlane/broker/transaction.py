"""Steps of a transaction as checked values: messages to push, acks, and transactions of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import msgspec

from fairlane.broker.transact import AckStep, Outcome, Step
from fairlane.model.message import Message, PushItem, PushOptions, check_options, check_payload
from fairlane.model.outcome import AckStatus
from fairlane.model.payload import json_of
from fairlane.model.verdict import ack_item


class Transaction:
    """Steps in the making; `outcomes` after the commit."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.outcomes: list[Outcome] = []

    def push(self, queue: str, data: Any, **options: Unpack[PushOptions]) -> None:
        self.steps.append(item_of(queue, data, **options))

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


def item_of(queue: str, data: Any, **options: Unpack[PushOptions]) -> PushItem:
    check_options(options)
    return PushItem(queue=queue, payload=encoded("the data", data), **options)


def encoded(what: str, value: Any) -> bytes:
    """`value` as JSON. Raw parts of it are bytes that nobody has looked at yet, and objects may be nested without
    end."""
    encoded = json_of(what, value)
    check_payload(encoded)
    return encoded
