"""Acks on the wire."""

from __future__ import annotations

import msgspec


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


class AckBatch(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    acknowledgments: list[Ack]
    consumer_group: str | None = None


class AckElement(msgspec.Struct, rename="camel"):
    """The outcome of one ack."""

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
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
