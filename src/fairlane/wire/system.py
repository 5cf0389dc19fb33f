"""The system on the wire: a broker, its store, and the settings in force."""

from __future__ import annotations

from typing import Any

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer
from fairlane.wire.status import JournalStatus


class Setting(Answer):
    """A setting as it is in force; what is secret is masked."""

    name: str
    value: str | int | float | bool | None
    default: bool
    """Whether it is as nobody set it."""
    help: str


class BrokerProcess(Answer):
    """The process that answers."""

    version: str
    hostname: str
    pid: int
    python: str
    started_at: Moment
    memory_bytes: int
    processes: int
    """Of this broker, which share its port."""


class SystemReport(Answer):
    broker: BrokerProcess
    store: dict[str, Any]
    """As the database tells it; only the kind while it is away."""
    journal: JournalStatus | None
    settings: list[Setting]
    """None of a broker that a program has opened."""
