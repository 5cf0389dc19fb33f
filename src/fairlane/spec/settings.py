"""The settings of a queue, where they stand and which option each is. The one list of them."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from fairlane.model.queue import AfterLastAttempt, OnExpiry, Ordering, QueueOptions

Kind = Literal["count", "flag", "choice", "seconds", "milliseconds", "queue"]


class QueueSetting(NamedTuple):
    option: str
    kind: Kind
    choices: tuple[str, ...] = ()


# By section; "" is the queue itself.
QUEUE_SETTINGS: dict[str, dict[str, QueueSetting]] = {
    "": {
        "ordering": QueueSetting("ordering", "choice", get_args(Ordering)),
        "priority": QueueSetting("priority", "count"),
        "encrypted": QueueSetting("encryption_enabled", "flag"),
    },
    "retention": {
        "max_age_seconds": QueueSetting("retention_seconds", "seconds"),
        "completed_max_age_seconds": QueueSetting("completed_retention_seconds", "seconds"),
        "dead_letter_max_age_seconds": QueueSetting("dead_letter_retention_seconds", "seconds"),
        "max_depth": QueueSetting("max_size", "count"),
    },
    "delivery": {
        "max_attempts": QueueSetting("retry_limit", "count"),
        "initial_backoff_ms": QueueSetting("retry_delay_ms", "milliseconds"),
        "max_backoff_ms": QueueSetting("retry_delay_max_ms", "milliseconds"),
        "jitter": QueueSetting("retry_jitter", "flag"),
        "dead_letter_queue": QueueSetting("dead_letter_queue", "queue"),
        "on_exhausted": QueueSetting("on_exhausted", "choice", get_args(AfterLastAttempt)),
        "lease_seconds": QueueSetting("lease_seconds", "seconds"),
        "dedup_seconds": QueueSetting("dedup_seconds", "seconds"),
        "delay_seconds": QueueSetting("delay_seconds", "seconds"),
        "window_seconds": QueueSetting("window_seconds", "seconds"),
        "ttl_seconds": QueueSetting("ttl_seconds", "seconds"),
        "max_wait_seconds": QueueSetting("max_wait_seconds", "seconds"),
        "on_expiry": QueueSetting("on_expiry", "choice", get_args(OnExpiry)),
    },
}

# What a declared queue has unless it says otherwise: five deliveries, with growing pauses between them.
DECLARED = QueueOptions(retry_limit=4, retry_delay_ms=1000, retry_delay_max_ms=60_000)

# Options without a setting: the first follows from the ages above, the second does nothing in any queue.
IMPLIED = ("retention_enabled", "dlq_after_max_retries")
