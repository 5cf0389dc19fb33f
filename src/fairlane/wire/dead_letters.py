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
    replayed: bool | None = None
    """Only those that were replayed, or only those that were not."""


class DlqQuery(DeadLetterChoice):
    ids: str | None = None
    """Separated by commas."""
    limit: Limit = 100
    offset: Offset = 0


class DlqErrorsQuery(DeadLetterChoice):
    limit: Limit = 100


class ReplayBody(DeadLetterChoice):
    queue: str
    ids: list[str] | None = None
    limit: Limit | None = None
    """At most so many, those that failed first; the rest in calls after this one, with progress between them."""
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """The payload to push instead of the one that failed, of the one dead letter that `ids` names."""


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
    """The producer's bytes: JSON; null of one that is locked."""
    locked: str | None = None
    """Why the message is not shown: this broker has not its key, or it is not believed."""
    producer_sub: str | None = None
    trace_id: str | None
    position: int = -1
    """Of the message in its partition; -1 if the broker did not say."""
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


class DeadLetterError(Answer):
    """The dead letters of a queue and a group that have one error."""

    queue: str
    group: str = msgspec.field(name="consumerGroup")
    error: str
    count: int
    replayed: int
    """Those of them that were replayed already."""
    first_failed_at: Moment
    last_failed_at: Moment


class DeadLetterErrors(Answer):
    errors: list[DeadLetterError]
    """The most frequent first."""
    total: int
    """Dead letters that were counted."""
    complete: bool
    """False if there are more errors, or so many dead letters that only the latest of a queue were counted."""


class ReplayedLetter(Answer):
    id: str
    message_id: str
    """Of the new message."""


class ReplayedLetters(Answer):
    replayed: list[ReplayedLetter]


class PurgedLetters(Answer):
    purged: int
