"""Steps of a transaction as checked values: messages to push, acks, and transactions of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import msgspec

from fairlane.broker.transact import AckStep, Outcome, Step
from fairlane.errors import InvalidRequest
from fairlane.model.fan_in import FanInMessage, FanInOptions, FanInStep, items_of, named
from fairlane.model.message import Message, PushItem, PushOptions, check_items, check_options, check_payload
from fairlane.model.names import check_name
from fairlane.model.outcome import AckStatus, check_acks
from fairlane.model.payload import json_of
from fairlane.model.verdict import ack_item


class Transaction:
    """Steps that are being collected. `outcomes` is set after the commit."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.fan_ins: list[FanInStep] = []
        self.outcomes: list[Outcome] = []

    def push(self, queue: str, data: Any, **options: Unpack[PushOptions]) -> None:
        self.steps.append(item_of(queue, data, options))

    def fan_in(self, parts: Sequence[FanInMessage], then: FanInMessage, **options: Unpack[FanInOptions]) -> str:
        """Push messages, and push `then` once after the group has finished or given up all of them.

        Returns the id of the fan-in.
        """
        items, callback = items_of(parts, then, item_of)
        id, group = named(options)
        step = FanInStep(id=id, callback=callback, first=len(self.steps), total=len(items), group=group)
        self.steps += items
        self.fan_ins.append(step)
        return step.id

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


def check_steps(steps: Sequence[Step], fan_ins: Sequence[FanInStep] = ()) -> None:
    """Raise InvalidRequest unless all of these are valid steps of a transaction."""
    if not isinstance(steps, Sequence):
        raise InvalidRequest("a transaction takes a list of pushes and acks")
    check_items([step for step in steps if isinstance(step, PushItem)])
    for step in steps:
        if isinstance(step, PushItem):
            check_payload(step.payload)
        elif isinstance(step, AckStep):
            check_name("group", step.group)
            check_acks([step.item])
        else:
            raise InvalidRequest(f"a transaction takes pushes and acks, not {type(step).__name__}")
    for fan_in in fan_ins:
        fan_in.check()
        check_payload(fan_in.callback.payload)


def item_of(queue: str, data: Any, options: PushOptions) -> PushItem:
    check_options(options)
    return PushItem(queue=queue, payload=encoded("the data", data), **options)


def encoded(what: str, value: Any) -> bytes:
    """Return `value` as JSON, after checking raw parts and the depth of nesting."""
    encoded = json_of(what, value)
    check_payload(encoded)
    return encoded
