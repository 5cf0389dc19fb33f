"""Staged messages on the wire, and the database roles that may enqueue them."""

from __future__ import annotations

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body


class StagedQueue(Answer):
    """Messages of a queue that were enqueued in transactions of other programs, and that no broker has moved yet."""

    queue: str
    messages: int
    """Their number, counted up to 100,000."""
    oldest_at: Moment
    """Time when the oldest was enqueued."""


class StagedQueues(Answer):
    queues: list[StagedQueue]
    """Queues with staged messages, oldest first."""


class EnqueueGrantBody(Body):
    role: str
    """A role of the database."""
    queue: str | None = None
    """Queue that the role may use. None for every queue of the tenant."""


class EnqueueGrants(Answer):
    grants: list[EnqueueGrant]


class EnqueueRevoked(Answer):
    role: str
    queue: str | None
    revoked: bool
    """False if there was no such grant."""


class EnqueueGrant(Answer):
    role: str
    """A role of the database."""
    queue: str | None
    """None for every queue of the tenant."""
