"""Staged messages on the wire, and the database roles that may enqueue them."""

from __future__ import annotations

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer


class StagedQueue(Answer):
    """Messages of a queue that were enqueued in transactions of other programs, and that no broker has moved yet."""

    queue: str
    messages: int
    """Their number, counted up to 100,000."""
    oldest_at: Moment
    """Time when the oldest was enqueued."""


class EnqueueGrant(Answer):
    role: str
    """A role of the database."""
    queue: str | None
    """None for every queue of the tenant."""
