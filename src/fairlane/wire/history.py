"""History on the wire: what happened lately, in columns."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body


class HistoryQuery(Body):
    queue: str | None = None
    """Only what happened to its messages; all queues together without it."""
    group: str | None = None
    """Of this queue, whose lag is told."""
    minutes: Annotated[int, msgspec.Meta(ge=1, le=24 * 60)] = 60
    """How far back. Up to 5 it is told by second, of one queue by five seconds; beyond by minute."""


class History(Answer):
    """Points in time, oldest first, each column with one value for each: messages a second, null where nothing is
    known, as before the broker started. It is that of all processes of the broker that answers, and of latencies that
    of the slowest."""

    queue: str | None
    group: str | None
    step_seconds: int
    since: Moment = msgspec.field(name="from")
    """The time of the first point."""
    pushed: list[float | None]
    popped: list[float | None]
    acked: list[float | None]
    failed: list[float | None]
    dead: list[float | None]
    depth: list[int | None]
    """Messages that some group has not finished, as of when somebody counted."""
    oldest_seconds: list[float | None]
    """Age of the oldest of them, of all queues together."""
    lag: list[int | None]
    """Messages that the group has not finished, as of when somebody counted."""
    push_p50_ms: list[float | None] = msgspec.field(name="pushP50Ms")
    push_p99_ms: list[float | None] = msgspec.field(name="pushP99Ms")
    pop_p50_ms: list[float | None] = msgspec.field(name="popP50Ms")
    pop_p99_ms: list[float | None] = msgspec.field(name="popP99Ms")
    ack_p50_ms: list[float | None] = msgspec.field(name="ackP50Ms")
    ack_p99_ms: list[float | None] = msgspec.field(name="ackP99Ms")
