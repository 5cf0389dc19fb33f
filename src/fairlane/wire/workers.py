"""Workers on the wire: their reports, and the effects that their handlers store."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fairlane.model.limits import SECONDS_MAX
from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, ListQuery

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class WorkerQueue(Body):
    """Numbers of a worker for one queue and group."""

    queue: str
    group: str
    concurrency: Count
    in_hand: Count
    """Messages that the worker holds now."""
    handled: Count
    failed: Count
    mean_ms: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Recent average handling time of a message in milliseconds."""


class WorkerReport(Body):
    """The report of a worker."""

    app: str
    hostname: str
    pid: Count
    queues: Annotated[list[WorkerQueue], msgspec.Meta(max_length=1000)]
    current: Annotated[list[str], msgspec.Meta(max_length=100)] = msgspec.field(default_factory=list)
    """TransactionIds of the first messages that it handles now."""


class LiveWorker(WorkerReport, forbid_unknown_fields=False):
    """A worker with its latest report."""

    id: str
    seen_at: Moment
    lost: bool = False
    """True if it stopped reporting without leaving, for example because it was killed."""


class WorkerListQuery(ListQuery):
    """A page of the list of workers. `search` matches apps, machines and queues."""

    sort: Literal["id", "app", "host", "seen"] = "id"


class Workers(Answer):
    workers: list[LiveWorker]
    lost: list[LiveWorker] = msgspec.field(default_factory=list)
    """Workers that stopped reporting without leaving, latest first.

    They are listed for a day, or for an hour if their app has a live worker.
    """
    total: int = 0
    """Number of workers on all pages. The following fields count all live workers."""
    machines: int = 0
    in_hand: int = 0
    concurrency: int = 0
    handled: int = 0
    failed: int = 0


class WorkerLeft(Answer):
    id: str
    left: bool


class EffectQuery(Body):
    partition_id: str
    """Partition of the message."""


class EffectBody(Body):
    partition_id: str
    """Partition of the message."""
    value: msgspec.Raw
    seconds: Annotated[int, msgspec.Meta(ge=1, le=SECONDS_MAX)] = 7 * 24 * 3600


class Effect(Answer):
    key: str
    value: msgspec.Raw
    """Value that was stored first."""
