"""Fairlane: a durable, ordered message queue on the SQL database you already run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairlane.errors import (
    BrokerFailed,
    Conflict,
    FairlaneError,
    InvalidRequest,
    LaneLocked,
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
    from fairlane.app import App, Context, DeadLetter, Done, Retry
    from fairlane.broker.broker import Broker
    from fairlane.broker.delivery import Batch, Delivery
    from fairlane.client.client import Client
    from fairlane.client.message import Message

__all__ = [
    "AckItem",
    "App",
    "Batch",
    "Broker",
    "BrokerFailed",
    "Client",
    "Conflict",
    "Context",
    "DeadLetter",
    "Delivery",
    "Done",
    "FairlaneError",
    "InvalidRequest",
    "LaneLocked",
    "LaneWaiting",
    "LeaseLost",
    "Message",
    "NotFound",
    "OperationFailed",
    "OutcomeUnknown",
    "Overloaded",
    "PushItem",
    "QueueFull",
    "Retry",
    "Seek",
    "ShuttingDown",
    "StoreUnavailable",
    "Subscription",
    "TransactionRefused",
    "Unavailable",
]


_MODULES = {
    "App": "fairlane.app",
    "Batch": "fairlane.broker.delivery",
    "Broker": "fairlane.broker.broker",
    "Client": "fairlane.client",
    "Context": "fairlane.app",
    "DeadLetter": "fairlane.app",
    "Delivery": "fairlane.broker.delivery",
    "Done": "fairlane.app",
    "Message": "fairlane.client",
    "Retry": "fairlane.app",
}


def __getattr__(name: str) -> Any:
    """Imported when somebody asks for it: the broker needs the `server` extra, and who has it may not need HTTP."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'fairlane' has no attribute {name!r}")
    return getattr(import_module(module), name)
