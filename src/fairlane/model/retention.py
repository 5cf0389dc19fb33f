"""Retention: the rules and their results."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

RETENTION: Final = "retention"
"""Name of the service."""
Rule = Literal["retention", "completed", "dead_letters", "partitions"]
IDLE_SECONDS: Final = 30 * 86_400
"""Age at which an unused, empty partition is deleted, unless its queue remembers ids for longer."""
HISTORY_SECONDS: Final = 90 * 86_400
PARTITION_HISTORY_SECONDS: Final = 7 * 86_400
"""Age at which the history by partition is deleted, which is much larger than the history by queue."""
LOOK_SECONDS_MIN: Final = 1
LOOK_SECONDS_MAX: Final = 3600
LOOK_SHARE: Final = 8
"""Part of a message's age after which a rule checks it again, if a lagging group or a lease keeps it.

The longer a lane is stuck, the less often it is checked.
"""


class Expired(msgspec.Struct, frozen=True):
    """Messages, dead letters or partitions of one queue that one step deleted by one rule."""

    queue_id: int
    rule: Rule
    messages: int
    unread: int
    """Number of them that some group had not finished, or that were in a queue without groups."""


class RetentionStep(msgspec.Struct, frozen=True):
    expired: list[Expired]
    more: bool
    """True if more is due now."""


class Retained(msgspec.Struct, frozen=True):
    """One minute of a queue's history: the deletions by one rule."""

    queue_id: int
    rule: Rule
    at: int
    messages: int
    unread: int
