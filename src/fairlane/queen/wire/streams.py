"""Streams on the wire. Fields are snake_case, as the runtimes of streams use them."""

from __future__ import annotations

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.push import Item


class QueryBody(msgspec.Struct, kw_only=True):
    name: str
    source_queue: str
    sink_queue: str | None = None
    config_hash: str
    reset: bool = False


class RegisteredQuery(msgspec.Struct, kw_only=True):
    success: bool
    query_id: str
    name: str
    config_hash: str
    fresh: bool
    reset: bool


class StateGetBody(msgspec.Struct, kw_only=True):
    query_id: str
    partition_id: str
    keys: list[str] = msgspec.field(default_factory=list)
    """Keys to return. An empty list means all."""
    key_prefix: str | None = None
    ripe_at_or_before: float | None = None
    """Largest `windowEnd` of the returned rows."""


class StateEntry(msgspec.Struct, kw_only=True):
    key: str
    value: msgspec.Raw
    updated_at: Moment


class StateRows(msgspec.Struct, kw_only=True):
    success: bool
    rows: list[StateEntry]


class StateOpBody(msgspec.Struct, kw_only=True):
    type: str
    """`upsert` or `delete`."""
    key: str
    value: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class CycleAck(msgspec.Struct, rename="camel", kw_only=True):
    transaction_id: str
    """Id of the last finished message."""
    lease_id: str | None = None
    status: str = "completed"
    count: int = 0
    error: str | None = None


class CycleBody(msgspec.Struct, kw_only=True):
    query_id: str
    partition_id: str
    consumer_group: str | None = None
    release_lease: bool = True
    state_ops: list[StateOpBody] = msgspec.field(default_factory=list)
    push_items: list[Item] = msgspec.field(default_factory=list)
    ack: CycleAck | None = None


class CycleAckResult(msgspec.Struct, kw_only=True):
    success: bool
    count: int
    lease_released: bool
    dlq: bool


class CycleResult(msgspec.Struct, kw_only=True):
    success: bool
    query_id: str
    partition_id: str
    queue_name: str | None = msgspec.field(name="queueName", default=None)
    state_ops_applied: int = 0
    push_results: list[msgspec.Raw] = msgspec.field(default_factory=list)
    ack_result: CycleAckResult | None = None
    skipped: str | None = None
    """Reason why a flush did nothing. Read the state again before retrying it."""
    error: str | None = None
    code: str | None = None
