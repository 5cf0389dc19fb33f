"""Pushes on the wire."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from fairlane.model.message import PushItem
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.wire.problem import Problem


# A request has many of these, and none can be part of a cycle, so the garbage collector need not track them.
class Item(PushItem, rename="camel", kw_only=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A message to store."""

    payload: msgspec.Raw
    partition: str | None = DEFAULT_PARTITION  # type: ignore[assignment]
    deliver_at: Moment | None = None
    delay_ms: int | None = None
    producer_sub: Any = None
    """Sent by published clients and ignored: `check_wire_items` replaces it by the subject of the caller."""


class UniformItem(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    """An `Item` with these fields only, which is the common case. It decodes twice as fast and needs fewer checks."""

    queue: str
    payload: msgspec.Raw
    partition: str = DEFAULT_PARTITION
    transaction_id: str | None = None

    trace_id: ClassVar[None] = None
    type: ClassVar[None] = None
    headers: ClassVar[None] = None
    deliver_at: ClassVar[None] = None
    delay_ms: ClassVar[None] = None
    priority: ClassVar[None] = None
    max_attempts: ClassVar[None] = None
    unique: ClassVar[None] = None
    unique_key: ClassVar[None] = None
    producer_sub: ClassVar[None] = None
    special: ClassVar[bool] = False


class PushBody(msgspec.Struct, forbid_unknown_fields=True):
    items: list[Item]


class UniformPushBody(msgspec.Struct, forbid_unknown_fields=True):
    items: list[UniformItem]


class PushElement(Problem, kw_only=True):
    """The outcome of one pushed item. The mix of camelCase and snake_case is what published clients expect."""

    transaction_id: str = msgspec.field(name="transaction_id", default="")
    status: str
    message_id: str | None = msgspec.field(name="message_id", default=None)
    partition_id: str | None = msgspec.field(name="partition_id", default=None)
    remaining_capacity: int | None = msgspec.field(name="remainingCapacity", default=None)
    operation_id: str | None = msgspec.field(name="operationId", default=None)
    queue_position: int | None = msgspec.field(name="queuePosition", default=None)
    reason: str | None = None
    estimated_wait: float | None = msgspec.field(name="estimatedWait", default=None)
    durability: str | None = None
    deliver_at: Moment | None = msgspec.field(name="deliverAt", default=None)


class PushQuery(msgspec.Struct, rename="camel"):
    brief: bool = False
    """Answer with `PushedIds` if all items were stored, in queues without a limit."""


class PushedIds(msgspec.Struct, rename="camel"):
    """The brief answer to a push."""

    message_ids: list[str]
    partitions: list[tuple[str, int]]
    """Pairs of a partitionId and the number of consecutive items it has."""


class PushRefusal(msgspec.Struct):
    """The answer to a push that stored nothing."""

    results: list[PushElement] = []
