"""Fan-ins on the wire: their progress, and the payload of their callbacks."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit, Offset

PartStatus = Literal["open", "completed", "dead_letter", "cancelled", "expired", "deleted"]


class FanInPart(Answer):
    """A part of a fan-in: a message as the group of the fan-in sees it."""

    part: int
    """Number of the part, from 0 in the order of the call."""
    queue: str
    partition: str
    partition_id: str
    transaction_id: str
    status: PartStatus
    error: str | None = None
    """Last error of a dead letter."""
    ended_at: Moment | None = None


class FanIn(Answer):
    """A fan-in with the numbers of its parts by status."""

    id: str
    queue: str
    """Queue of the callback."""
    consumer_group: str
    """Group whose acks end the parts."""
    status: Literal["open", "ended", "refused"]
    """`ended`: the callback was pushed. `refused`: its queue does not take it now, and it is tried again."""
    total: int
    open: int
    completed: int
    failed: int
    """Number of parts that ended in any other way."""
    created_at: Moment
    ended_at: Moment | None = None
    """Time when the callback was pushed."""
    error: str | None = None
    """Reason why the callback could not be pushed."""


class FanInDetail(FanIn):
    """A fan-in with a page of its parts."""

    parts: list[FanInPart]


class FanIns(Answer):
    fan_ins: list[FanIn]


class FanInListQuery(Body):
    limit: Limit = 100


class FanInPartsQuery(Body):
    limit: Limit = 100
    offset: Offset = 0


class FanInDeleted(Answer):
    id: str
    deleted: bool


class FanInFailure(Answer):
    """A part that did not complete, in the payload of a callback."""

    part: int
    queue: str
    transaction_id: str
    status: PartStatus
    error: str | None = None


class FanInEnd(Answer):
    """The payload of a callback."""

    fan_in: str
    """Id of the fan-in."""
    data: Any = None
    """Data of the callback, as the creator of the fan-in gave it."""
    total: int
    results: list[Any]
    """Result of each part, in their order. Null for a part without one, or with one that is too large."""
    failed: int = 0
    """Number of parts that did not complete."""
    failures: list[FanInFailure] = msgspec.field(default_factory=list)
    """The first hundred of them."""
    results_left_out: int = 0
    """Number of results that are null because they are too large, or encrypted while the callback is not."""
