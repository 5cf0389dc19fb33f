"""File descriptors: how many the process may have open."""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> int:
    """Take what the system allows: the usual soft limit is a thousand, which a thousand clients use up. The limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # some systems name a hard limit that they do not grant
        return soft
    return hard
