"""Retention: what its rules delete."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

RETENTION: Final = "retention"
"""The name of the service."""
Rule = Literal["retention", "completed", "dead_letters", "partitions"]
IDLE_SECONDS: Final = 30 * 86_400
"""An empty partition that nobody used for so long goes, unless its queue remembers ids for longer."""
HISTORY_SECONDS: Final = 90 * 86_400
PARTITION_HISTORY_SECONDS: Final = 7 * 86_400
"""What went is told by queue for the first, by partition for this long: there may be very many of those."""
LOOK_SECONDS_MIN: Final = 1
LOOK_SECONDS_MAX: Final = 3600
LOOK_SHARE: Final = 8
"""What a rule covers by its age, and a lagging group or a lease keeps, is looked at again after an eighth of its age:
the longer a lane is stuck, the rarer."""


class Expired(msgspec.Struct, frozen=True):
    """Messages (or dead letters, or partitions) of one queue that one step deleted by one rule."""

    queue_id: int
    rule: Rule
    messages: int
    unread: int
    """Those among them that some group had not finished, or that were in a queue which nobody reads."""


class Step(msgspec.Struct, frozen=True):
    expired: list[Expired]
    more: bool
    """Something is left that is due now."""


class Retained(msgspec.Struct, frozen=True):
    """A minute of a queue's history: what one rule deleted in it."""

    queue_id: int
    rule: Rule
    at: int
    messages: int
    unread: int
