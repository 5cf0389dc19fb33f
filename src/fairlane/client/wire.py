"""The shapes on the wire as a client sends and reads them. camelCase lives here and in no other module of the
client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from fairlane.client.problems import Problem
from fairlane.errors import FairlaneError, InvalidRequest
from fairlane.model.limits import RENEW_SECONDS
from fairlane.model.message import PushItem
from fairlane.model.moment import Moment
from fairlane.model.names import DEFAULT_PARTITION
from fairlane.model.outcome import AckItem
from fairlane.wire.base import decoder

T = TypeVar("T")

encode = msgspec.json.Encoder().encode


class Item(PushItem, rename="camel", omit_defaults=True, kw_only=True):
    payload: msgspec.Raw
    # Named again, for a base's fields keep the base's spelling.
    partition: str = DEFAULT_PARTITION
    transaction_id: str
    trace_id: str | None = None
    deliver_at: str | None = None  # type: ignore[assignment]
    delay_ms: int | None = None
    priority: int | None = None


class PushBody(msgspec.Struct):
    items: list[Item]


class PushElement(Problem, kw_only=True):
    """The outcome of one pushed item. Some names are camelCase and some are not: so it is on the wire."""

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


class PushRefusal(msgspec.Struct):
    """A push of which nothing was stored."""

    results: list[PushElement] = []


class Ack(msgspec.Struct, rename="camel", omit_defaults=True):
    transaction_id: str
    partition_id: str
    status: str
    lease_id: str | None = None
    error: str | None = None
    delay_ms: int | None = None
    result: msgspec.Raw | None = None
    cumulative: bool = False


class AckBody(msgspec.Struct, rename="camel"):
    acknowledgments: list[Ack]
    consumer_group: str


class AckElement(msgspec.Struct, rename="camel"):
    success: bool
    transaction_id: str
    error: str | None = None
    code: str | None = None
    noop: bool = False
    dlq: bool = False
    lease_released: bool | None = None
    operation_id: str | None = None
    queue_position: int | None = None
    reason: str | None = None
    estimated_wait: float | None = None
    durability: str | None = None
    result: msgspec.Raw = msgspec.Raw()  # an optional Raw is not `Raw | None`: that takes nothing but null


class PushStep(msgspec.Struct, tag="push"):
    items: list[Item]


class AckStep(msgspec.Struct, rename="camel", omit_defaults=True, tag="ack"):
    transaction_id: str
    partition_id: str
    consumer_group: str
    status: str = "completed"
    lease_id: str | None = None
    error: str | None = None
    delay_ms: int | None = None
    result: msgspec.Raw | None = None


class TransactionBody(msgspec.Struct):
    operations: list[PushStep | AckStep]


class TransactionResult(msgspec.Struct, rename="camel"):
    """The result of one step: a pushed item's fields, or an ack's."""

    type: str
    transaction_id: str
    success: bool = True
    status: str = "queued"
    message_id: str | None = None
    partition_id: str | None = None
    error: str | None = None
    dlq: bool = False


class TransactionAnswer(Problem, rename="camel"):
    success: bool = False
    results: list[TransactionResult] = msgspec.field(default_factory=list)


class Popped(msgspec.Struct, rename="camel"):
    """One message of a pop."""

    id: str
    transaction_id: str
    data: msgspec.Raw
    partition_id: str
    partition: str
    created_at: datetime
    lease_id: str | None = None
    consumer_group: str = ""
    trace_id: str | None = None
    type: str | None = None
    headers: dict[str, str] | None = None


class PopAnswer(msgspec.Struct, rename="camel"):
    queue: str = ""
    lease_id: str | None = None
    consumer_group: str = ""
    messages: list[Popped] = []
    ordered: bool = False
    """Nobody else is given messages of these partitions meanwhile."""
    failed_attempts: dict[int, int] = {}
    """By the number of the message; of those that have any."""
    lease_seconds: int = RENEW_SECONDS
    """How long the lease is."""


class RenewAnswer(msgspec.Struct, rename="camel"):
    renewed: int = 0
    new_expires_at: datetime | None = None


class ReleaseAnswer(msgspec.Struct):
    released: int = 0


def ack_of(item: AckItem) -> Ack:
    return Ack(
        item.transaction_id,
        str(item.partition),
        item.status,
        item.lease,
        item.error,
        item.delay_ms,
        None if item.result is None else msgspec.Raw(item.result),
        item.cumulative,
    )


def decode(body: bytes, type: type[T]) -> T:
    """A successful answer as `type`."""
    try:
        answer: T = decoder(type).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FairlaneError(f"the server's answer is not what a Fairlane broker says: {error}") from None
    return answer


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Momenteconds since 1970, as every `_at`."""
    return (at - _EPOCH) // _MICROSECOND


def timestamp(at: int) -> str:
    """A point in time as text."""
    try:
        return (_EPOCH + at * _MICROSECOND).isoformat()
    except (OverflowError, TypeError):
        raise InvalidRequest(f"{at!r:.40} is not a point in time in microseconds since 1970") from None
