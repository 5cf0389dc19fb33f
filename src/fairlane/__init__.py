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
from fairlane.model.batch import Batch
from fairlane.model.group import Seek, Subscription
from fairlane.model.message import Message, PushItem
from fairlane.model.outcome import AckItem
from fairlane.model.verdict import Dead, Done, Fail, Retry

if TYPE_CHECKING:
    from fairlane.broker.broker import Broker
    from fairlane.client import Client, DeadLetter
    from fairlane.wire.fan_ins import FanInEnd
    from fairlane.worker.app import App
    from fairlane.worker.context import Context

__all__ = [
    "AckItem",
    "App",
    "Batch",
    "Broker",
    "BrokerFailed",
    "Client",
    "Conflict",
    "Context",
    "Dead",
    "DeadLetter",
    "Done",
    "Fail",
    "FairlaneError",
    "FanInEnd",
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
    "App": "fairlane.worker.app",
    "Broker": "fairlane.broker.broker",
    "Client": "fairlane.client",
    "Context": "fairlane.worker.context",
    "DeadLetter": "fairlane.client",
    "FanInEnd": "fairlane.wire.fan_ins",
}


def __dir__() -> list[str]:
    """Return all public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, because the broker needs the `server` extra."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'fairlane' has no attribute {name!r}")
    return getattr(import_module(module), name)
