"""Operations on the wire: accepted pushes and acks that are applied later.

Their fields are snake_case, except in the statistics for the dashboard.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.model.operation import RETRIES_MAX, OperationStatus
from fairlane.wire.base import NULL, Answer, Body

PageLimit = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class OperationItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one message or ack of an operation."""

    transaction_id: str = ""
    status: str = ""
    message_id: str | None = None
    position: int | None = None
    acked: str = msgspec.field(name="transactionId", default="")
    """TransactionId of an ack. `success` and `error` are set with it."""
    success: bool | None = None
    error: str | None = None

    @property
    def came_to(self) -> str:
        return self.status or ("applied" if self.success else self.error or "refused")


class OperationResult(msgspec.Struct, frozen=True):
    items: list[OperationItem] = []


_decode_result = msgspec.json.Decoder(OperationResult | None).decode


class OperationState(Answer, rename=None):
    """The state of an operation."""

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
    max_retries: int = RETRIES_MAX
    """Number of permanent errors after which the operation is `failed`."""
    error_message: str | None = None
    failed_at: Moment | None = None
    """Time of the last error."""
    latency_seconds: float | None = None
    """Seconds from acceptance to the end."""
    messages: int = 0
    durability: Literal["store", "journal"] = "store"
    """Location of the operation: the `store`, or the `journal` of the broker that answers."""
    raw_result: msgspec.Raw = msgspec.field(name="result", default_factory=lambda: NULL)
    """Outcome of each item, once the operation is completed."""

    @property
    def result(self) -> OperationResult | None:
        found: OperationResult | None = _decode_result(self.raw_result)
        return found


class OperationsQuery(Body):
    status: OperationStatus | None = None
    queue: str | None = None
    cursor: str | None = None
    """`cursor` of the previous page."""
    order: Literal["asc", "desc"] = "asc"
    """`desc` for the newest first, of completed or discarded operations."""
    limit: PageLimit = 100


class OperationPage(Answer):
    operations: list[OperationState]
    cursor: str | None = None
    """Cursor of the next page. Null on the last one."""
    complete: bool = True
    """False while the store does not answer. Then only operations in this broker's journal are listed."""

    def __iter__(self) -> Iterator[OperationState]:
        return iter(self.operations)


class SettleBody(Body):
    """A choice of failed operations: by ids, by queue, or all. Exactly one of these."""

    ids: Annotated[list[str], msgspec.Meta(max_length=1000)] | None = None
    queue: str | None = None
    all: bool = False
    cursor: str | None = None
    """`cursor` of the previous answer, to continue."""
    limit: PageLimit = 100


class RefusedOperation(Answer):
    """An operation that could not be retried or discarded, and is unchanged."""

    id: str
    error: str
    code: str


class SettledOperations(Answer):
    """The result of retrying or discarding failed operations."""

    done: list[str]
    refused: list[RefusedOperation]
    """Operations that could not be changed, each with the reason."""


class SettledPage(SettledOperations):
    cursor: str | None = None
    """Cursor to continue with. Null at the end."""


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


class DrainBacklog(Answer):
    queue: str
    partition: str
    consumer_group: str | None
    depth: int
    moved_at: Moment
    """Time when the first of them was accepted, or when the previous one ended."""


class OperationStats(Answer):
    stats: list[OperationCounts]
    system_health: SystemHealth
    lanes: list[DrainBacklog]
