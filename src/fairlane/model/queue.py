"""Queues, their options and their partitions."""

from __future__ import annotations

import difflib
import re
from typing import Any, Literal, get_args

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId
from fairlane.model.limits import BATCH_ITEMS_MAX, COUNT_MAX, LEASE_SECONDS_MAX, SECONDS_MAX
from fairlane.model.names import check_count, check_flag, check_name
from fairlane.model.rate import DeliveryRate

Ordering = Literal["per_key", "fifo", "unordered"]
OnExpiry = Literal["dead_letter", "drop"]
AfterLastAttempt = Literal["dead_letter", "block", "park"]


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a queue. 0 means off, for every limit and every duration except the lease."""

    ordering: Ordering = "per_key"
    lease_seconds: int = 300
    retry_limit: int = 3
    """Retries after a failed attempt. A message is delivered at most retry_limit + 1 times."""
    retry_delay_ms: int = 0
    """Milliseconds that the lane sleeps after the first failed attempt. Doubles with each further one."""
    retry_delay_max_ms: int = 60_000
    retry_jitter: bool = False
    """True to make each sleep half to all of its length, so that lanes that failed together retry apart."""
    on_exhausted: AfterLastAttempt = "dead_letter"
    """Action after the last attempt.

    `dead_letter`: the lane continues. `block`: the lane waits until the message is removed or retried. `park`: the lane
    is set aside until it is resumed, whatever happens to the message.
    """
    max_size: int = 0
    """Largest number of messages that some group has not finished. A push beyond it is refused whole."""
    max_running: int = 0
    """Largest number of messages that the consumers of a group hold at the same time."""
    rate: str = ""
    """Largest number of messages that are delivered to a group in a time, such as `10/1m`. Empty for no limit."""
    max_running_per_key: int = 0
    """Like `max_running`, but for each key: the messages of a partition with all its priorities."""
    rate_per_key: str = ""
    """Like `rate`, but for the messages of each key."""
    dedup_seconds: int = 86_400
    """Seconds for which a transactionId is remembered. 0 accepts every repeat."""
    delay_seconds: int = 0
    """Smallest age at which a message is delivered."""
    window_seconds: int = 0
    """A partition is not read while its newest message is younger than this. Then it is delivered completely."""
    ttl_seconds: int = 0
    """Age at which a message expires, unless it is leased."""
    max_wait_seconds: int = 0
    """Like `ttl_seconds`, but only for messages without a failed attempt."""
    on_expiry: OnExpiry = "dead_letter"
    """Action for an expired message: a dead letter with the error `expired`, or only a count."""
    priority: int = 0
    retention_enabled: bool = False
    """True to apply the next two rules."""
    retention_seconds: int = 0
    """Age at which messages are deleted, read or not, unless they are leased."""
    completed_retention_seconds: int = 0
    """Age at which messages that every group has finished are deleted."""
    dead_letter_retention_seconds: int = 0
    """Time after its last failure at which a dead letter is deleted."""
    encryption_enabled: bool = False
    dead_letter_queue: str | bool = False
    dlq_after_max_retries: bool = False
    cell: str = ""
    """Cell for a new queue: a number, or `same-as` and a queue. Empty for the emptiest one."""

    @property
    def expires_after(self) -> int:
        """Return the seconds after which a retention rule may delete a message at the earliest. 0 if none does."""
        if not self.retention_enabled:
            return 0
        return min(filter(None, (self.retention_seconds, self.completed_retention_seconds)), default=0)

    @property
    def limits_keys(self) -> bool:
        return bool(self.max_running_per_key or self.rate_per_key)

    @property
    def is_limited(self) -> bool:
        """True if the messages that a group holds or gets in a time are limited."""
        return bool(self.max_running or self.rate or self.max_running_per_key or self.rate_per_key)

    def key_of(self, partition: str) -> str:
        """Return the key by which the messages of a partition are limited."""
        return without_priority(partition) if self.ordering == "unordered" else partition

    def check(self) -> QueueOptions:
        """Return these options. Raises InvalidRequest for the first one that is out of bounds."""
        for name, choices in _CHOICES.items():
            given = getattr(self, name)
            if given not in choices:
                raise InvalidRequest(f"{name} must be one of {', '.join(choices)}, not {given!r:.40}")
        check_count("lease_seconds", self.lease_seconds, least=1, most=LEASE_SECONDS_MAX)
        check_count("retry_limit", self.retry_limit, least=0, most=BATCH_ITEMS_MAX)
        check_count("max_size", self.max_size, least=0, most=COUNT_MAX)
        for name in ("max_running", "max_running_per_key"):
            check_count(name, getattr(self, name), least=0, most=COUNT_MAX)
        for name in ("rate", "rate_per_key"):
            if getattr(self, name) != "":
                DeliveryRate.parse(name, getattr(self, name))
        check_count("priority", self.priority, least=-(2**31), most=2**31 - 1)
        for name in ("retry_delay_ms", "retry_delay_max_ms"):
            check_count(name, getattr(self, name), least=0, most=SECONDS_MAX * 1000)
        for name in _SECONDS:
            check_count(name, getattr(self, name), least=0, most=SECONDS_MAX)
        for name in _FLAGS:
            check_flag(name, getattr(self, name))
        if not isinstance(self.dead_letter_queue, bool):
            check_name("dead_letter_queue", self.dead_letter_queue)
        if not isinstance(self.cell, str) or (self.cell and _CELL.fullmatch(self.cell) is None):
            raise InvalidRequest(f"cell is {self.cell!r:.80}; it must be a number, or `same-as` and a queue's name")
        if self.max_running_per_key and self.ordering != "unordered":
            raise InvalidRequest(
                "max_running_per_key is for unordered queues; an ordered one handles a partition one batch at a time"
            )
        if self.rate_per_key and self.ordering == "fifo":
            raise InvalidRequest("rate_per_key needs keys, and a fifo queue has one partition; set rate instead")
        if self.ordering == "unordered":
            for name in _ORDERED_ONLY:
                if getattr(self, name):
                    raise InvalidRequest(
                        f"{name} is for ordered queues; an unordered one may delay a message when it is retried"
                    )
            if self.on_exhausted != "dead_letter":
                raise InvalidRequest("on_exhausted of an unordered queue must be dead_letter: it has no order to keep")
        return self


_CHOICES: dict[str, tuple[str, ...]] = {
    "ordering": get_args(Ordering),
    "on_exhausted": get_args(AfterLastAttempt),
    "on_expiry": get_args(OnExpiry),
}
_SECONDS = (
    "dedup_seconds",
    "delay_seconds",
    "window_seconds",
    "ttl_seconds",
    "max_wait_seconds",
    "retention_seconds",
    "completed_retention_seconds",
    "dead_letter_retention_seconds",
)
SAME_AS = "same-as "
_CELL = re.compile(r"\d{1,3}|same-as \S.*", re.ASCII)
_ORDERED_ONLY = ("delay_seconds", "window_seconds", "ttl_seconds", "max_wait_seconds")
_FLAGS = ("retry_jitter", "retention_enabled", "encryption_enabled", "dlq_after_max_retries")


def queue_options(**options: Any) -> QueueOptions:
    """Return checked options. Raises InvalidRequest for an unknown name or a value out of bounds."""
    unknown = sorted(set(options) - set(QueueOptions.__struct_fields__))
    if unknown:
        known = QueueOptions.__struct_fields__
        close = difflib.get_close_matches(unknown[0][:80], known, n=1, cutoff=0.7)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        raise InvalidRequest(f"unknown queue option {unknown[0]!r:.80}; {hint}")
    return QueueOptions(**options).check()


TURNED = "a queue that has partitions stays ordered or unordered; delete it first, or use another name"


def changes_ordering(before: QueueOptions, after: QueueOptions) -> bool:
    """Return True if the change makes an ordered queue unordered, or the reverse."""
    return (before.ordering == "unordered") != (after.ordering == "unordered")


def may_ready_lanes(before: QueueOptions, after: QueueOptions) -> bool:
    """Return True if a lane that sleeps or is stopped under `before` may be ready under `after`."""
    return (
        before.delay_seconds > after.delay_seconds
        or before.window_seconds > after.window_seconds
        or before.retry_limit < after.retry_limit
        or before.on_exhausted != after.on_exhausted
        or before.max_running != after.max_running
        or before.rate != after.rate
        or before.max_running_per_key != after.max_running_per_key
        or before.rate_per_key != after.rate_per_key
    )


def labels_of(name: str) -> tuple[str, str]:
    """Return (namespace, task) of a queue created by a push: the parts of its name around the first dots."""
    parts = name.split(".")
    return parts[0], parts[1] if len(parts) > 1 else ""


PRIORITY_MAX = 9
PRIORITY_SECONDS = 60
"""Seconds of waiting that one level of priority is worth.

Urgent messages come first, and others wait at most nine minutes longer than without priorities.
"""
_PRIORITY = re.compile(r"![1-9]\Z")


def with_priority(partition: str, priority: int) -> str:
    """Return the partition of an unordered queue that holds the messages of this priority."""
    return f"{partition}!{priority}" if priority else partition


def without_priority(partition: str) -> str:
    return _PRIORITY.sub("", partition)


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    tenant: str
    name: str
    namespace: str
    task: str
    options: QueueOptions
    created_at: int
    """Microseconds since 1970, as every `_at` in the core."""


class Paused(msgspec.Struct, frozen=True):
    """Pauses of a queue with their start times: the queue itself, and groups and partitions by name."""

    queue_at: int | None
    groups: dict[str, int]
    partitions: dict[str, int]


class Partition(msgspec.Struct, frozen=True):
    id: PartitionId
    queue_id: int
    name: str
    unordered: bool = False
    """True if consumers share the partition. This never changes for a partition."""
