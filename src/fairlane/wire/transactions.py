"""Transactions on the wire."""

from __future__ import annotations

import msgspec

from fairlane.model.moment import Moment
from fairlane.model.outcome import Isolation
from fairlane.wire.problem import Problem
from fairlane.wire.push import Item


class TransactionStep(Item, rename="camel", kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One step of a transaction: an ack, a push of `items` or of one item in the fields of the step, or a fan-in.

    A fan-in pushes `items`, and `then` after the `consumer_group` has finished or given up all of them.
    """

    type: str
    items: list[Item] | None = None
    queue: str | None = ""  # type: ignore[assignment]
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # type: ignore[assignment]
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    partition_id: str | None = None
    status: str | None = "completed"
    consumer_group: str | None = None
    lease_id: str | None = None
    error: str | None = None
    traceback: str | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    position: int | None = None
    id: str | None = None
    """Id of a fan-in. The broker makes one if it is missing."""
    then: Item | None = None


class TransactionBody(msgspec.Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    operations: list[TransactionStep] = msgspec.field(default_factory=list)
    required_leases: list[str] | None = None
    isolation: str = "serializable"
    """Weakest acceptable isolation level: `serializable`, `repeatable read` or `read committed`."""
    kv: list[msgspec.Raw] | None = None
    """Steps of Queen that Fairlane refuses, like `timers`: it has no key-value store and no timers in transactions."""
    timers: list[msgspec.Raw] | None = None


class TransactionResult(msgspec.Struct, rename="camel", kw_only=True):
    """The outcome of one step, with the fields of a push or of an ack."""

    index: int = 0
    type: str
    success: bool = True
    transaction_id: str
    status: str | msgspec.UnsetType = msgspec.UNSET
    message_id: str | msgspec.UnsetType | None = msgspec.UNSET
    partition_id: str | msgspec.UnsetType = msgspec.UNSET
    queue_name: str | msgspec.UnsetType | None = msgspec.UNSET
    deliver_at: Moment | msgspec.UnsetType = msgspec.UNSET
    """Time of delivery of a scheduled message."""
    error: str | msgspec.UnsetType | None = msgspec.UNSET
    dlq: bool | msgspec.UnsetType = msgspec.UNSET


class TransactionAnswer(Problem, kw_only=True):
    """The outcome of a transaction: all steps or, with a problem, none."""

    transaction_id: str = msgspec.field(name="transactionId")
    success: bool
    isolation: Isolation
    """Isolation level at which it ran."""
    results: list[TransactionResult]
