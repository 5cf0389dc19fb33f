"""Dead letters on the wire."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit, Offset, Pagination


class DeadLetterChoice(Body):
    """A filter of dead letters. All given conditions must hold."""

    queue: str | None = None
    consumer_group: str | None = None
    partition: str | None = None
    since: Moment | None = msgspec.field(name="from", default=None)
    until: Moment | None = msgspec.field(name="to", default=None)
    error: str | None = None
    """Text that the last error must contain."""
    replayed: bool | None = None
    """True for replayed ones only, false for the others only."""


class DlqQuery(DeadLetterChoice):
    ids: str | None = None
    """Ids, separated by commas."""
    tracebacks: bool = False
    """True for the tracebacks of all kept errors, which makes each letter up to 80 KB larger."""
    limit: Limit = 100
    offset: Offset = 0


class DlqErrorsQuery(DeadLetterChoice):
    limit: Limit = 100


class ReplayBody(DeadLetterChoice):
    queue: str
    ids: list[str] | None = None
    limit: Limit | None = None
    """Largest number to replay, oldest failures first. Repeat the call for the rest."""
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Payload to push instead of the original. Only with one id in `ids`."""


class PurgeQuery(DeadLetterChoice):
    queue: str
    ids: str | None = None
    """Ids, separated by commas."""


class FailedAttempt(Answer):
    at: Moment
    error: str
    traceback: str | None = None
    """Frames of the failed handler, newest last. Null if its consumer sent none, or if the query did not ask."""


class DeadLetter(Answer):
    """A message that a group has given up after its last attempt."""

    id: str
    """Id of the dead letter, for replay and purge."""
    message_id: str
    transaction_id: str
    partition_id: str
    queue: str
    partition: str
    group: str = msgspec.field(name="consumerGroup")
    error: str = msgspec.field(name="errorMessage")
    attempts: int = msgspec.field(name="retryCount")
    raw: msgspec.Raw = msgspec.field(name="data")
    """The producer's bytes, as JSON. Null if the payload is locked."""
    locked: str | None = None
    """Reason why the payload is not shown: this broker lacks its key, or it is not authentic."""
    producer_sub: str | None = None
    trace_id: str | None
    position: int = -1
    """Position of the message in its partition. -1 if the broker did not send it."""
    created_at: Moment
    first_failed_at: Moment
    failed_at: Moment
    errors: list[FailedAttempt]
    """Errors of the last ten failed attempts, oldest first."""
    replayed_at: Moment | None
    replayed_as: str | None
    """Id of the message that it was replayed as."""

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.raw)


class DeadLetterList(Answer):
    messages: list[DeadLetter]
    total: int
    pagination: Pagination


class DeadLetterError(Answer):
    """Dead letters of a queue and a group with the same error."""

    queue: str
    group: str = msgspec.field(name="consumerGroup")
    error: str
    count: int
    replayed: int
    """Number of these dead letters that were replayed."""
    first_failed_at: Moment
    last_failed_at: Moment


class DeadLetterErrors(Answer):
    errors: list[DeadLetterError]
    """Errors, most frequent first."""
    total: int
    """Number of dead letters that were counted."""
    complete: bool
    """False if there are more errors, or if only the latest dead letters of a queue were counted."""


class ReplayedLetter(Answer):
    id: str
    message_id: str
    """Id of the new message."""


class ReplayedLetters(Answer):
    replayed: list[ReplayedLetter]


class PurgedLetters(Answer):
    purged: int
