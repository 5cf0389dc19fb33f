"""Webhooks on the wire: their state and their latest requests."""

from __future__ import annotations

from typing import Any, Literal

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, ListQuery


class WebhookRequest(Answer):
    """A request to a webhook, without its payload."""

    at: Moment
    outcome: str
    status: int
    why: str | None


class WebhookSummary(Answer):
    """A webhook of an applied spec, with counts of the processes of this broker since they started."""

    name: str
    queue: str | None
    command: str | None
    scheme: str | None
    """Scheme of the signature. Null if none is required."""
    available: bool
    """False if this broker lacks the secret of the webhook and answers 503."""
    delivered: int
    refused: int
    refused_lately: int
    """Requests refused for their signature in the last five minutes. The oldest ones may be missing."""
    last_delivered_at: Moment | None
    last_refused_at: Moment | None
    outcomes: dict[str, int]
    recent: list[WebhookRequest]
    """Latest requests, newest first."""


class WebhookListQuery(ListQuery):
    """A page of the list of webhooks. `search` also matches their queues."""

    sort: Literal["name", "refused", "delivered"] = "name"


class WebhookList(Answer):
    hooks: list[WebhookSummary]
    total: int = 0
    """Number of webhooks on all pages."""
    delivered: int = 0
    refused: int = 0
    """Refused requests of all webhooks since this process started."""


class WebhookTest(Answer):
    """The answer to a signed sample request."""

    status: int
    body: Any
