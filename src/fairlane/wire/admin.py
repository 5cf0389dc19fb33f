"""The admin API on the wire: queues and dead letters for operators. Times are seconds since 1970."""

from __future__ import annotations

import msgspec

from fairlane.wire.base import Answer, Body, Limit
from fairlane.wire.browse import Status


class AdminQueue(Answer, rename=None):
    name: str
    depth: int
    """Messages that wait, without leased ones."""
    in_flight: int
    oldest_message_age_seconds: float | None
    """Age of the oldest message that some group has not finished."""
    messages_per_minute: float
    """Pushes through this broker in the last minute."""
    dead_letters: int
    """Dead letters that were not replayed."""


class AdminQueues(Answer, rename=None):
    queues: list[AdminQueue]
    stats_age: int = 0
    """Seconds since the queues were counted. 0 unless there are very many partitions."""


class AdminChoice(Body, rename=None):
    """A filter of dead letters. All given conditions must hold."""

    consumer_group: str | None = None
    partition: str | None = None
    error: str | None = None
    """Part of the text of the last error."""
    failed_from: float | None = None
    failed_until: float | None = None
    """Latest time of the last failure. `failed_from` and `failed_until` are inclusive."""


class AdminLettersQuery(AdminChoice, rename=None):
    limit: Limit = 100
    cursor: str | None = None
    """`next` of the previous page."""


class AdminLetterHead(Answer, rename=None):
    id: str
    failed_at: float
    error: str
    attempts: int


class AdminLetter(AdminLetterHead, rename=None):
    preview: msgspec.Raw
    """The message, shortened if it is long."""


class AdminLetters(Answer, rename=None):
    dead_letters: list[AdminLetter]
    next: str | None
    """`cursor` of the next page. Null on the last one."""


class AdminReplayResult(Answer):
    """The result of a replayed dead letter, for the group that had dead-lettered it."""

    status: Status
    result: msgspec.Raw
    """Result of the ack, as JSON."""
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
    """Id of the message that it was replayed as."""
    replay_result: AdminReplayResult | None
    """Null if it was not replayed, or if the new message is not stored yet or was deleted."""


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
