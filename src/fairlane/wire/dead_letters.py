"""Dead letters on the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit, Offset, Pagination


class DeadLetterChoice(Body):
    """The choice of dead letters: those that all that is given holds for."""

    queue: str | None = None
    consumer_group: str | None = None
    partition: str | None = None
    since: Moment | None = msgspec.field(name="from", default=None)
    until: Moment | None = msgspec.field(name="to", default=None)
    error: str | None = None
    """Only those whose last error contains this."""


class DlqQuery(DeadLetterChoice):
    limit: Limit = 100
    offset: Offset = 0


class ReplayBody(DeadLetterChoice):
    queue: str
    ids: list[str] | None = None


class PurgeQuery(DeadLetterChoice):
    queue: str
    ids: str | None = None
    """Separated by commas."""


class FailedAttempt(Answer):
    at: Moment
    error: str


class DeadLetter(Answer):
    """A message that a group gave up on."""

    id: str
    """Of the dead letter, as replay and purge take it."""
    message_id: str
    transaction_id: str
    partition_id: str
    queue: str
    partition: str
    group: str = msgspec.field(name="consumerGroup")
    error: str = msgspec.field(name="errorMessage")
    attempts: int = msgspec.field(name="retryCount")
    raw: msgspec.Raw = msgspec.field(name="data")
    """The producer's bytes: JSON."""
    producer_sub: str | None = None
    trace_id: str | None
    created_at: Moment
    first_failed_at: Moment
    failed_at: Moment
    errors: list[FailedAttempt]
    """Of the last ten failed attempts, oldest first."""
    replayed_at: Moment | None
    replayed_as: str | None
    """The id of the message that it was pushed as."""

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.raw)


class DeadLetterList(Answer):
    messages: list[DeadLetter]
    total: int
    pagination: Pagination


class ReplayedLetter(Answer):
    id: str
    message_id: str
    """Of the new message."""


class ReplayedLetters(Answer):
    replayed: list[ReplayedLetter]


class PurgedLetters(Answer):
    purged: int
