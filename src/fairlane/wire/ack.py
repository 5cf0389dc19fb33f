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
    """Finish what the lease was given before this message too: unless false for a single ack, if true in a batch."""
    position: int | None = None
    """Of the message, as its pop told it; then its id is not looked up."""
    count: Annotated[int, msgspec.Meta(ge=1, le=BATCH_ITEMS_MAX)] | None = None
    """So many messages in a row are completed, from the one at `position` on, whatever their ids; only in a batch."""


class PlainAck(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    """An `Ack` that says no more than that messages are done, as nearly all do: it is read in less time, and needs
    fewer looks."""

    transaction_id: str
    partition_id: str
    lease_id: str
    status: Literal["completed"] = "completed"
    position: int | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=BATCH_ITEMS_MAX)] | None = None


class PlainAcks(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    acknowledgments: list[PlainAck]
    consumer_group: str | None = None


class AckBatch(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    acknowledgments: list[Ack]
    consumer_group: str | None = None


class AckElement(AckOutcome, gc=False, kw_only=True):
    """The outcome of one ack, as it is sent. A newer broker may have more reasons."""

    dead_lettered: bool = msgspec.field(name="dlq", default=False)
    reason: str | None = None  # type: ignore[assignment]
    durability: str | None = None  # type: ignore[assignment]
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # type: ignore[assignment]
    count: int = 1
    """Messages of which this is said: of an ack that names several, which came to the same."""
