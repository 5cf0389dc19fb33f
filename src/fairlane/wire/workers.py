"""Workers on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, ListQuery

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class WorkerQueue(Body):
    """A worker's numbers for one queue and group."""

    queue: str
    group: str
    concurrency: Count
    in_hand: Count
    """Messages that it holds now."""
    handled: Count
    failed: Count
    mean_ms: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """How long a message takes, lately."""


class WorkerReport(Body):
    """A worker, and its work."""

    app: str
    hostname: str
    pid: Count
    queues: Annotated[list[WorkerQueue], msgspec.Meta(max_length=1000)]
    current: Annotated[list[str], msgspec.Meta(max_length=100)] = msgspec.field(default_factory=list)
    """TransactionIds of messages that it works on now; the first of them."""


class Worker(WorkerReport, forbid_unknown_fields=False):
    """A worker that is alive."""

    id: str
    seen_at: Moment


class WorkerListQuery(ListQuery):
    """`search` finds apps, machines and queues."""

    sort: Literal["id", "app", "host", "seen"] = "id"


class Workers(Answer):
    workers: list[Worker]
    total: int = 0
    """How many there are, on all pages. What follows is of all that are alive."""
    machines: int = 0
    in_hand: int = 0
    concurrency: int = 0
    handled: int = 0
    failed: int = 0


class WorkerLeft(Answer):
    id: str
    left: bool
