"""Values of limits between the broker and a store."""

from __future__ import annotations

import msgspec


class Allowance(msgspec.Struct, frozen=True):
    """The number of messages that a group may get now, under `max_running` and `rate` of its queue."""

    allowed: int | None
    """Number of messages. None without limits."""
    until: int | None
    """Time when it may get more, if it may get none now."""
    limited_by: str | None
    """`max_running` or `rate`, if it may get none now."""
    running: int | None
    """Messages that its consumers hold. None without `max_running`."""
    started: int | None
    """Messages that were delivered in the window of the rate. None without one."""
