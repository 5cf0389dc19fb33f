"""Fairlane: a durable, ordered message queue on the SQL database you already run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairlane.errors import (
    Conflict,
    FairlaneError,
    InvalidRequest,
    LaneWaiting,
    LeaseLost,
    NotFound,
    OperationFailed,
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
    from fairlane.client.client import Client
    from fairlane.client.message import Message
    from fairlane.delivery import Batch, Delivery

__all__ = [
    "AckItem",
    "Batch",
    "Broker",
    "Client",
    "Conflict",
    "Delivery",
    "FairlaneError",
    "InvalidRequest",
    "LaneWaiting",
    "LeaseLost",
    "Message",
    "NotFound",
    "OperationFailed",
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


_HOMES = {
    "Batch": "fairlane.delivery",
    "Broker": "fairlane.broker",
    "Client": "fairlane.client",
    "Delivery": "fairlane.delivery",
    "Message": "fairlane.client",
}


def __getattr__(name: str) -> Any:
    """Imported when somebody asks for it: the broker needs the `server` extra, and who has it may not need HTTP."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'fairlane' has no attribute {name!r}")
    return getattr(import_module(home), name)
