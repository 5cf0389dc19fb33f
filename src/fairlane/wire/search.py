"""Search on the wire: everything whose name or id matches a text."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.model.limits import NAME_CHARS_MAX
from fairlane.wire.base import Answer, Body
from fairlane.wire.browse import MessageHead


class SearchQuery(Body):
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    """Part of the name of a queue, beginning of the name of a partition, or a complete id."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=50)] = 5
    """Largest number of results of each kind."""


class FoundPartition(Answer):
    queue: str
    partition: str


class FoundOperation(Answer):
    id: str
    queue: str
    status: str


class SearchResult(Answer):
    queues: list[str]
    """Queues whose names contain the text."""
    partitions: list[FoundPartition]
    """Partitions whose names begin with the text."""
    messages: list[MessageHead]
    """Messages with this transactionId."""
    trace: list[MessageHead]
    """Messages with this traceId, newest first."""
    operation: FoundOperation | None
    complete: bool
    """False if only the partitions that were written to last were searched for the transactionId."""
