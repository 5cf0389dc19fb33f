"""Fairlane: a durable, ordered message queue on the SQL database you already run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlane.errors import (
    Conflict,
    FairlaneError,
    InvalidRequest,
    LeaseLost,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    QueueFull,
    ShuttingDown,
    StoreUnavailable,
    TransactionRefused,
    Unavailable,
)
from fairlane.model.group import Seek, Subscription
from fairlane.model.message import PushItem
from fairlane.model.outcome import AckItem

if TYPE_CHECKING:
    from fairlane.broker import Broker
    from fairlane.delivery import Batch, Delivery

__all__ = [
    "AckItem",
    "Batch",
    "Broker",
    "Conflict",
    "Delivery",
    "FairlaneError",
    "InvalidRequest",
    "LeaseLost",
    "NotFound",
    "OutcomeUnknown",
    "Overloaded",
    "PushItem",
    "QueueFull",
    "Seek",
    "ShuttingDown",
    "StoreUnavailable",
    "Subscription",
    "TransactionRefused",
    "Unavailable",
]


def __getattr__(name: str) -> Any:
    """The broker needs the `server` extra, so that it is imported only when somebody asks for it."""
    if name == "Broker":
        from fairlane.broker import Broker

        return Broker
    if name in ("Batch", "Delivery"):
        from fairlane import delivery

        return getattr(delivery, name)
    raise AttributeError(f"module 'fairlane' has no attribute {name!r}")
