"""Operations on the wire: pushes and acks that were accepted and are applied later. They are snake_case, but for the
numbers of a dashboard."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.model.operation import OperationStatus
from fairlane.wire.base import NULL, Answer, Body

PageLimit = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class OperationItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one message of an operation, or of one ack."""

    transaction_id: str = ""
    status: str = ""
    message_id: str | None = None
    position: int | None = None
    acked: str = msgspec.field(name="transactionId", default="")
    """The transactionId that an ack is of; then `success` and `error` say what became of it."""
    success: bool | None = None
    error: str | None = None

    @property
    def came_to(self) -> str:
        return self.status or ("applied" if self.success else self.error or "refused")


class OperationResult(msgspec.Struct, frozen=True):
    items: list[OperationItem] = []


_decode_result = msgspec.json.Decoder(OperationResult | None).decode


class OperationState(Answer, rename=None):
    """An operation, as a broker shows it."""

    id: str
    operation_type: str
    status: OperationStatus
    priority: int = 0
    queue: str = ""
    partition: str = ""
    consumer_group: str | None = None
    created_at: Moment
    processing_started_at: Moment | None = None
    processed_at: Moment | None = None
    worker: str | None = None
    retry_count: int = 0
    error_message: str | None = None
    failed_at: Moment | None = None
    """When it met its last error."""
    latency_seconds: float | None = None
    """From acceptance to its end."""
    messages: int = 0
    durability: Literal["store", "journal"] = "store"
    """Where it is: in the `store`, or in the `journal` of the broker that answers."""
    raw_result: msgspec.Raw = msgspec.field(name="result", default_factory=lambda: NULL)
    """What became of each item, once it is completed."""

    @property
    def result(self) -> OperationResult | None:
        found: OperationResult | None = _decode_result(self.raw_result)
        return found


class OperationsQuery(Body):
    status: OperationStatus | None = None
    queue: str | None = None
    cursor: str | None = None
    """`cursor` of the page before."""
    limit: PageLimit = 100


class OperationPage(Answer):
    operations: list[OperationState]
    cursor: str | None = None
    """Of the next page; null on the last one."""
    complete: bool = True
    """False while the store does not answer: then only those of this broker's journal are here."""


class SettleBody(Body):
    """The choice of failed operations: those named, those of a queue, or all of them. Just one of the three."""

    ids: Annotated[list[str], msgspec.Meta(max_length=1000)] | None = None
    queue: str | None = None
    all: bool = False
    cursor: str | None = None
    """`cursor` of the answer before, to go on."""
    limit: PageLimit = 100


class RefusedOperation(Answer):
    """One that could not be retried or discarded, and is as it was."""

    id: str
    error: str
    code: str


class SettledOperations(Answer):
    """The outcome of failed operations that were retried or discarded together."""

    done: list[str]
    refused: list[RefusedOperation]
    """Those that cannot be, each with the reason; they are as they were."""


class SettledPage(SettledOperations):
    cursor: str | None = None
    """Where to go on; null when there are no more."""


class OperationCounts(Answer, rename=None):
    operation_type: str
    priority: int
    status: str
    count: int
    oldest: Moment
    newest: Moment
    avg_latency_seconds: float | None


class SystemHealth(Answer):
    pool_utilization: float
    pool_waiting: int
    queue_depth: int


class Backlog(Answer):
    queue: str
    partition: str
    consumer_group: str | None
    depth: int
    moved_at: Moment
    """When the first of them came, or the last one before them ended."""


class OperationStats(Answer):
    stats: list[OperationCounts]
    system_health: SystemHealth
    lanes: list[Backlog]
