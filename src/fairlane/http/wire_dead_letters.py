"""Shapes of dead letters."""

from __future__ import annotations

import msgspec

from fairlane.errors import StoreCorrupt
from fairlane.http.wire_queues import Wire
from fairlane.model.moment import timestamp, timestamp_or_none
from fairlane.model.outcome import DeadLetter
from fairlane.model.segment import unpack
from fairlane.wire.base import NULL, Limit, Offset


class DlqQuery(Wire, rename="camel", kw_only=True):
    queue: str | None = None
    consumer_group: str | None = None
    partition: str | None = None
    since: str | None = msgspec.field(name="from", default=None)
    until: str | None = msgspec.field(name="to", default=None)
    error: str | None = None
    """Only those whose last error contains this."""
    limit: Limit = 100
    offset: Offset = 0


class FailedAttempt(Wire, rename="camel", kw_only=True):
    at: str
    error: str


class DeadLetterEntry(Wire, rename="camel", kw_only=True):
    id: str
    """Of the dead letter, as replay and purge take it."""
    message_id: str
    transaction_id: str
    partition_id: str
    queue: str
    partition: str
    consumer_group: str
    error_message: str
    retry_count: int
    data: msgspec.Raw
    producer_sub: str | None = None
    trace_id: str | None
    created_at: str
    first_failed_at: str
    failed_at: str
    errors: list[FailedAttempt]
    """Of the last ten failed attempts, oldest first."""
    replayed_at: str | None
    replayed_as: str | None


class Pagination(Wire, rename="camel", kw_only=True):
    limit: int
    offset: int


class DeadLetterList(Wire, rename="camel", kw_only=True):
    messages: list[DeadLetterEntry]
    total: int
    pagination: Pagination


class ReplayBody(Wire, rename="camel", kw_only=True):
    """The choice of dead letters: those that all that is given holds for."""

    queue: str
    consumer_group: str | None = None
    partition: str | None = None
    since: str | None = msgspec.field(name="from", default=None)
    until: str | None = msgspec.field(name="to", default=None)
    error: str | None = None
    ids: list[str] | None = None


class ReplayedLetter(Wire, rename="camel", kw_only=True):
    id: str
    message_id: str
    """Of the new message."""


class ReplayedLetters(Wire, rename="camel", kw_only=True):
    replayed: list[ReplayedLetter]


class PurgeQuery(Wire, rename="camel", kw_only=True):
    queue: str
    consumer_group: str | None = None
    partition: str | None = None
    since: str | None = msgspec.field(name="from", default=None)
    until: str | None = msgspec.field(name="to", default=None)
    error: str | None = None
    ids: str | None = None
    """Separated by commas."""


class PurgedLetters(Wire, rename="camel", kw_only=True):
    purged: int


def letter_out(letter: DeadLetter) -> DeadLetterEntry:
    id = transaction_id = ""
    data, trace_id = NULL, None
    try:
        message = unpack(letter.message, position=letter.position, created_at=letter.message_created_at, locked=True)
        id, transaction_id, data, trace_id = message.id, message.transaction_id, message.raw, message.trace_id
    except StoreCorrupt:
        pass  # its bytes rotted; the letter is shown with what is known of it
    return DeadLetterEntry(
        id=letter.id,
        message_id=id,
        transaction_id=transaction_id,
        partition_id=str(letter.partition),
        queue=letter.queue,
        partition=letter.partition_name,
        consumer_group=letter.group,
        error_message=letter.error,
        retry_count=letter.attempts,
        data=data,
        trace_id=trace_id,
        created_at=timestamp(letter.message_created_at),
        first_failed_at=timestamp(letter.first_failed_at),
        failed_at=timestamp(letter.failed_at),
        errors=[
            *(FailedAttempt(at=timestamp(one.at), error=one.error) for one in letter.history),
            FailedAttempt(at=timestamp(letter.failed_at), error=letter.error),
        ],
        replayed_at=timestamp_or_none(letter.replayed_at),
        replayed_as=letter.replayed_as,
    )
