"""Words of findings: counts, durations and groups, as people read them."""

from __future__ import annotations

from fairlane.model.names import QUEUE_MODE


def count_text(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def wait_text(count: int, noun: str) -> str:
    return f"{count_text(count, noun)} {'waits' if count == 1 else 'wait'}"


def group_text(name: str) -> str:
    return "the queue's own group" if name == QUEUE_MODE else f"the group {name!r}"


def span_text(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 2 * size:
            return count_text(int(seconds // size), name)
    return count_text(int(seconds), "second")
