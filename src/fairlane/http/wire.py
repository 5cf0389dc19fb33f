"""The shapes on the wire. camelCase and old spellings live here and nowhere else."""

from __future__ import annotations

import msgspec

from fairlane.model.message import PushItem

NULL = msgspec.Raw(b"null")
# An optional Raw is an empty one, not `Raw | None`: that takes nothing but null.


# Many of these come with each request, and none can be part of a cycle: the collector need not look at them.
class WireItem(PushItem, rename="camel", kw_only=True, gc=False, forbid_unknown_fields=True):
    payload: msgspec.Raw
    partition: str | None = "Default"  # type: ignore[assignment]
    # Named again, for a base's fields keep the base's spelling.
    transaction_id: str | None = None
    trace_id: str | None = None
    deliver_at: str | None = None  # type: ignore[assignment]
    delay_ms: int | None = None
    priority: int | None = None
    producer_sub: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    """Published clients send it, and nobody believes it: who produced a message is not for its body to say."""


class PushBody(msgspec.Struct, forbid_unknown_fields=True):
    items: list[WireItem]


class AckBody(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    transaction_id: str
    partition_id: str
    status: str | None = "completed"
    lease_id: str | None = None
    consumer_group: str | None = None
    error: str | None = None
    delay_ms: int | None = None
    result: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    cumulative: bool | None = None
    """Finish what the lease was given before this message too: unless false for a single ack, if true in a batch."""


class AckBatchBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    acknowledgments: list[AckBody]
    consumer_group: str | None = None


class ExtendBody(msgspec.Struct, forbid_unknown_fields=True):
    seconds: int = 60


class Operation(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One step of a transaction: a push (its items, or one item flat) or an ack."""

    type: str
    items: list[WireItem] | None = None
    queue: str | None = None
    partition: str | None = None
    payload: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    data: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    transaction_id: str | None = None
    trace_id: str | None = None
    deliver_at: str | None = None
    """Refused, and so is delayMs of a push: a transaction cannot schedule."""
    priority: int | None = None
    partition_id: str | None = None
    status: str | None = "completed"
    consumer_group: str | None = None
    lease_id: str | None = None
    error: str | None = None
    delay_ms: int | None = None
    result: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class TransactionBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    operations: list[Operation] = msgspec.field(default_factory=list)
    required_leases: list[str] | None = None
    kv: list[msgspec.Raw] | None = None
    """Refused, as timers are: there is no key-value store here, and what is scheduled is no part of a transaction."""
    timers: list[msgspec.Raw] | None = None
