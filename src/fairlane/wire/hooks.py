"""Webhooks on the wire: those in force, and what came."""

from __future__ import annotations

from typing import Any

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer


class HookRequest(Answer):
    """A request to a webhook; never its payload."""

    at: Moment
    outcome: str
    status: int
    why: str | None


class Hook(Answer):
    """A webhook of a spec in force, with what this process counted since it started."""

    name: str
    queue: str | None
    command: str | None
    scheme: str | None
    """Whose signature it must have; null: none is asked for."""
    available: bool
    """False if its secret is missing here: then it answers 503."""
    delivered: int
    refused: int
    refused_lately: int
    """In the last five minutes, for their signature; at most as many as are remembered."""
    last_delivered_at: Moment | None
    last_refused_at: Moment | None
    outcomes: dict[str, int]
    recent: list[HookRequest]
    """The last ones, newest first."""


class HookList(Answer):
    hooks: list[Hook]
    """By name."""


class HookTest(Answer):
    """The answer that the sender of a signed sample would have got."""

    status: int
    body: Any
