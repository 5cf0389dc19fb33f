"""Shapes of workers."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.http.wire import timestamp
from fairlane.store.families.workers import Seen

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class Wire(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """camelCase on the wire."""


class WorkerQueue(Wire, rename="camel", kw_only=True):
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


class WorkerBody(Wire, rename="camel", kw_only=True):
    app: str
    hostname: str
    pid: Count
    queues: Annotated[list[WorkerQueue], msgspec.Meta(max_length=1000)]
    current: Annotated[list[str], msgspec.Meta(max_length=100)] = []
    """TransactionIds of messages that it works on now; the first of them."""


class WorkerAnswer(WorkerBody, rename="camel", kw_only=True):
    id: str
    seen_at: str


class WorkerList(Wire, rename="camel", kw_only=True):
    workers: list[WorkerAnswer]


class WorkerGone(Wire, rename="camel", kw_only=True):
    id: str
    left: bool


_decode = msgspec.json.Decoder(WorkerBody).decode


def worker_out(seen: Seen) -> WorkerAnswer:
    body = _decode(seen.facts)
    return WorkerAnswer(
        id=seen.id,
        seen_at=timestamp(seen.seen_at),
        app=body.app,
        hostname=body.hostname,
        pid=body.pid,
        queues=body.queues,
        current=body.current,
    )
