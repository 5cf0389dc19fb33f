"""Shapes of the admin API: queues and dead letters for people who run things. Times are seconds since 1970."""

from __future__ import annotations

import msgspec

from fairlane.broker.dead_letters import shown
from fairlane.errors import InvalidRequest
from fairlane.model.outcome import DeadLetter
from fairlane.wire.base import Limit

PREVIEW_CHARS = 200


class AdminQueue(msgspec.Struct, kw_only=True):
    name: str
    depth: int
    """Messages that wait, without those in consumers' hands."""
    in_flight: int
    oldest_message_age_seconds: float | None
    """Of the oldest that some group has not finished."""
    messages_per_minute: float
    """Pushed through this broker, over the last minute."""
    dead_letters: int
    """That were not replayed."""


class AdminQueues(msgspec.Struct, kw_only=True):
    queues: list[AdminQueue]


class AdminLettersQuery(msgspec.Struct, kw_only=True):
    limit: Limit = 100
    cursor: str | None = None
    """`next` of the page before."""


class AdminLetter(msgspec.Struct, kw_only=True):
    id: str
    failed_at: float
    error: str
    attempts: int
    preview: str
    """The beginning of the message."""


class AdminLetters(msgspec.Struct, kw_only=True):
    dead_letters: list[AdminLetter]
    next: str | None
    """The `cursor` of the next page, null on the last."""


class AdminLetterDetail(msgspec.Struct, kw_only=True):
    id: str
    failed_at: float
    first_failed_at: float
    error: str
    attempts: int
    partition: str
    consumer_group: str
    message_id: str
    transaction_id: str
    data: msgspec.Raw
    created_at: float
    replayed_at: float | None
    new_message_id: str | None
    """What it was replayed as."""


class AdminFilter(msgspec.Struct, kw_only=True):
    """A filter of dead letters; what is not given does not matter."""

    ids: list[str] | None = None
    consumer_group: str | None = None
    failed_from: float | None = None
    failed_until: float | None = None


class AdminPurgeQuery(msgspec.Struct, kw_only=True):
    consumer_group: str | None = None
    failed_from: float | None = None
    failed_until: float | None = None


class AdminReplayed(msgspec.Struct, kw_only=True):
    ok: bool
    new_message_id: str


class AdminReplayedOne(msgspec.Struct, kw_only=True):
    id: str
    new_message_id: str


class AdminReplayedMany(msgspec.Struct, kw_only=True):
    ok: bool
    replayed: list[AdminReplayedOne]


class AdminDone(msgspec.Struct, kw_only=True):
    ok: bool


class AdminPurged(msgspec.Struct, kw_only=True):
    ok: bool
    purged: int


def admin_letter(letter: DeadLetter) -> AdminLetter:
    text = bytes(shown(letter).raw).decode("utf-8", "replace")
    return AdminLetter(
        id=letter.id,
        failed_at=letter.failed_at / 1e6,
        error=letter.error,
        attempts=letter.attempts,
        preview=text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}...",
    )


def admin_letter_detail(letter: DeadLetter) -> AdminLetterDetail:
    known = shown(letter)
    return AdminLetterDetail(
        id=letter.id,
        failed_at=letter.failed_at / 1e6,
        first_failed_at=letter.first_failed_at / 1e6,
        error=letter.error,
        attempts=letter.attempts,
        partition=letter.partition_name,
        consumer_group=letter.group,
        message_id=known.message_id,
        transaction_id=known.transaction_id,
        data=known.raw,
        created_at=letter.message_created_at / 1e6,
        replayed_at=None if letter.replayed_at is None else letter.replayed_at / 1e6,
        new_message_id=letter.replayed_as,
    )


def cursor_of(letter: DeadLetter) -> str:
    return f"{letter.failed_at}_{letter.id}"


def read_cursor(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    failed_at, _, id = cursor.partition("_")
    if not (failed_at.isascii() and failed_at.isdecimal() and len(failed_at) < 19 and 0 < len(id) < 100):
        raise InvalidRequest("the cursor is none that a page gave as its `next`")
    return int(failed_at), id
