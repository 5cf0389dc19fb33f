"""Fan-ins: messages, their parts, whose ends together trigger a callback message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, cast

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.ids import uuid7
from fairlane.model.message import OPTIONS, PushItem, PushOptions
from fairlane.model.names import QUEUE_MODE, check_name

FanInMessage = tuple[str, Any] | tuple[str, Any, Mapping[str, Any]]
"""A part or a callback as callers give it: queue, data, and options of the push."""
FAN_IN_FORM = "give each part and `then` as (queue, data) or (queue, data, options)"
T = TypeVar("T")


_OPTIONS = OPTIONS - {"deliver_at", "delay_ms"}


class FanInOptions(TypedDict, total=False):
    """Options of a fan-in besides its parts and its callback."""

    id: str
    """Id of the fan-in, by which a repeated call is recognized. By default the call makes one."""
    group: str
    """Group whose acks end the parts. The default is the group of pops without a group."""


def named(options: FanInOptions) -> tuple[str, str]:
    """Return the id and the group of a fan-in. Raises InvalidRequest if one is invalid."""
    id = options.get("id")
    return uuid7() if id is None else check_name("id", id), check_name("group", options.get("group", QUEUE_MODE))


def items_of(
    parts: Sequence[FanInMessage], then: FanInMessage, item_of: Callable[[str, Any, PushOptions], T]
) -> tuple[list[T], T]:
    """Return the parts and the callback as items. Raises InvalidRequest with the number of the first bad part."""
    if not isinstance(parts, list | tuple):
        raise InvalidRequest(f"parts must be a list, not {type(parts).__name__}")
    items = []
    for number, part in enumerate(parts):
        try:
            items.append(_item(part, item_of))
        except InvalidRequest as error:
            raise InvalidRequest(f"part {number}: {error}") from None
    try:
        return items, _item(then, item_of)
    except InvalidRequest as error:
        raise InvalidRequest(f"then: {error}") from None


def _item(message: FanInMessage, item_of: Callable[[str, Any, PushOptions], T]) -> T:
    if not isinstance(message, tuple | list) or len(message) not in (2, 3):
        raise InvalidRequest(FAN_IN_FORM)
    queue, data, *rest = message
    options: Any = rest[0] if rest else {}
    if not isinstance(options, Mapping):
        raise InvalidRequest(FAN_IN_FORM)
    if unknown := options.keys() - _OPTIONS:
        raise InvalidRequest(f"{min(unknown)!r:.40} is no option here; use {', '.join(sorted(_OPTIONS))}")
    return item_of(queue, data, cast(PushOptions, {**options}))


class FanInStep(msgspec.Struct, kw_only=True):
    """A fan-in inside a transaction. Its parts are `total` pushes in a row, from the step `first` on."""

    id: str
    callback: PushItem
    """The message to push after the ends of all parts. Its payload becomes the field `data` of the pushed one."""
    first: int
    total: int
    group: str = QUEUE_MODE

    def check(self) -> None:
        """Raise InvalidRequest if the fan-in cannot be stored. The caller checks the parts and the payload."""
        check_name("id", self.id)
        check_name("consumerGroup", self.group)
        try:
            self.callback.check()
        except InvalidRequest as error:
            raise InvalidRequest(f"then: {error}") from None
        if self.callback.deliver_at is not None or self.callback.delay_ms is not None:
            raise InvalidRequest("then: the callback is pushed after the last part; leave out deliverAt and delayMs")
        if self.callback.unique is not None:
            raise InvalidRequest("then: the callback is pushed once; leave out unique")


class Callback(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The callback of a fan-in in stored form."""

    queue: str
    data: msgspec.Raw
    partition: str
    transaction_id: str
    trace_id: str | None = None
    type: str | None = None
    headers: dict[str, str] | None = None
    priority: int | None = None
    max_attempts: int | None = None
    producer_sub: str | None = None

    @staticmethod
    def of(step: FanInStep) -> Callback:
        """Return the callback of a fan-in. Without a transactionId of its own it gets the id of the fan-in."""
        item = step.callback
        fields = {name: getattr(item, name) for name in Callback.__struct_fields__ if name != "data"}
        fields["transaction_id"] = item.transaction_id or step.id
        return Callback(data=msgspec.Raw(bytes(item.payload)), **fields)

    def item(self, payload: bytes) -> PushItem:
        """Return the message to push."""
        fields = {name: getattr(self, name) for name in Callback.__struct_fields__ if name != "data"}
        return PushItem(payload=payload, **fields)
