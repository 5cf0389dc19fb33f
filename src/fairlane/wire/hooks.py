"""Webhooks on the wire: those in force, and what came."""

from __future__ import annotations

from typing import Any, Literal

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, ListQuery


class HookRequest(Answer):
    """A request to a webhook; never its payload."""

    at: Moment
    outcome: str
    status: int
    why: str | None


class Hook(Answer):
    """A webhook of a spec in force, with what the processes of this broker counted since they started."""

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


class HookListQuery(ListQuery):
    """`search` also finds their queues."""

    sort: Literal["name", "refused", "delivered"] = "name"


class HookList(Answer):
    hooks: list[Hook]
    total: int = 0
    """How many there are, on all pages."""
    delivered: int = 0
    refused: int = 0
    """Of all webhooks, since this process started."""


class HookTest(Answer):
    """The answer that the sender of a signed sample would have got."""

    status: int
    body: Any
