"""Values of limits between the broker and a store."""

from __future__ import annotations

import msgspec


class Allowance(msgspec.Struct, frozen=True):
    """The number of messages that a group may get now under the limits of its queue, of all keys or of one."""

    allowed: int | None
    """Number of messages. None without limits."""
    until: int | None
    """Time when it may get more, if it may get none now."""
    limited_by: str | None
    """The option that allows none now: `max_running`, `rate`, `max_running_per_key` or `rate_per_key`."""
    running: int | None
    """Messages that its consumers hold. None without a limit of them."""
    started: int | None
    """Messages that were delivered in the window of the rate. None without one."""
