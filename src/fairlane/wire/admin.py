"""The admin API on the wire: queues and dead letters for people who run things. Times are seconds since 1970."""

from __future__ import annotations

import msgspec

from fairlane.wire.base import Answer, Body, Limit
from fairlane.wire.browse import Status


class AdminQueue(Answer, rename=None):
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


class AdminQueues(Answer, rename=None):
    queues: list[AdminQueue]
    stats_age: int = 0
    """Seconds since the queues were counted; 0 unless there are very many partitions."""


class AdminChoice(Body, rename=None):
    """The choice of dead letters: those that all that is given holds for."""

    consumer_group: str | None = None
    partition: str | None = None
    error: str | None = None
    """Part of the last error's text."""
    failed_from: float | None = None
    failed_until: float | None = None
    """Both are included."""


class AdminLettersQuery(AdminChoice, rename=None):
    limit: Limit = 100
    cursor: str | None = None
    """`next` of the page before."""


class AdminLetterHead(Answer, rename=None):
    id: str
    failed_at: float
    error: str
    attempts: int


class AdminLetter(AdminLetterHead, rename=None):
    preview: msgspec.Raw
    """The message; a long one is shortened."""


class AdminLetters(Answer, rename=None):
    dead_letters: list[AdminLetter]
    next: str | None
    """The `cursor` of the next page, null on the last."""


class AdminReplayResult(Answer):
    """The end of the message that a dead letter was replayed as, for the group that had given it up."""

    status: Status
    result: msgspec.Raw
    """Result that the ack carried, as JSON."""
    error: str | None
    """Error of the last attempt, if the replay was dead-lettered again."""


class AdminLetterDetail(AdminLetterHead, rename=None):
    first_failed_at: float
    partition: str
    consumer_group: str
    message_id: str
    transaction_id: str
    data: msgspec.Raw
    created_at: float
    replayed_at: float | None
    new_message_id: str | None
    """What it was replayed as."""
    replay_result: AdminReplayResult | None
    """Null if it was not replayed, and while the new message is not stored yet or no longer."""


class AdminFilter(AdminChoice, rename=None):
    ids: list[str] | None = None


class AdminReplayed(Answer, rename=None):
    ok: bool = True
    new_message_id: str


class AdminReplayedOne(Answer, rename=None):
    id: str
    new_message_id: str


class AdminReplayedMany(Answer):
    ok: bool = True
    replayed: list[AdminReplayedOne]


class AdminDone(Answer):
    ok: bool = True


class AdminPurged(Answer):
    ok: bool = True
    purged: int
