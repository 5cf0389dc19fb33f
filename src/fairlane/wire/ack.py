"""Acks on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fairlane.model.limits import BATCH_ITEMS_MAX
from fairlane.model.outcome import AckOutcome


class Ack(msgspec.Struct, rename="camel", gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A verdict on one message."""

    transaction_id: str
    partition_id: str
    status: str | None = "completed"
    lease_id: str | None = None
    consumer_group: str | None = None
    error: str | None = None
    delay_ms: int | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    cumulative: bool | None = None
    """True to finish the messages of the lease before this one, too. Default: true for a single ack, else false."""
    position: int | None = None
    """Position of the message, from its pop. With it, the id is not looked up."""
    count: Annotated[int, msgspec.Meta(ge=1, le=BATCH_ITEMS_MAX)] | None = None
    """Number of consecutive messages to complete, from `position` on, whatever their ids. Only in a batch."""
    traceback: str | None = None
    """Frames of the failed handler, newest last, kept with the error. Only the last 8 KB are kept."""


class UniformAckBody(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    """An `Ack` that only completes messages, which is the common case. It decodes faster and needs fewer checks."""

    transaction_id: str
    partition_id: str
    lease_id: str
    status: Literal["completed"] = "completed"
    position: int | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=BATCH_ITEMS_MAX)] | None = None


class UniformAckBatch(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    acknowledgments: list[UniformAckBody]
    consumer_group: str | None = None


class AckBatch(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    acknowledgments: list[Ack]
    consumer_group: str | None = None


class AckElement(AckOutcome, gc=False, kw_only=True):
    """The outcome of one ack. A newer broker may send other reasons."""

    dead_lettered: bool = msgspec.field(name="dlq", default=False)
    reason: str | None = None  # type: ignore[assignment]
    durability: str | None = None  # type: ignore[assignment]
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # type: ignore[assignment]
    count: int = 1
    """Number of messages with this outcome, for an ack of several messages."""
