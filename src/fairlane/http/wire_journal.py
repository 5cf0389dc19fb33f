"""Shapes of failed entries of the journal."""

from __future__ import annotations

import msgspec

from fairlane.broker.failed_operations import FailedOperations
from fairlane.http.wire_queues import Wire
from fairlane.model.moment import timestamp
from fairlane.store.contract.journal import Entry
from fairlane.wire.base import Limit


class FailedEntry(Wire, rename="camel", kw_only=True):
    """Messages, or acks, that the store refused when they came from the journal."""

    id: str
    kind: str
    queue: str | None
    consumer_group: str | None
    """Of acks."""
    partition: str
    messages: int
    error: str
    accepted_at: str


class FailedEntries(Wire, rename="camel", kw_only=True):
    entries: list[FailedEntry]


class FailedQuery(Wire, rename="camel", kw_only=True):
    limit: Limit = 100


class EntryDone(msgspec.Struct, kw_only=True):
    entry: FailedEntry
    status: str
    """`waiting` again, or `discarded`."""


def failed_out(operations: FailedOperations, entry: Entry) -> FailedEntry:
    backlog = entry.backlog
    return FailedEntry(
        id=operations.id_of(entry),
        kind=backlog.kind,
        queue=backlog.name if backlog.kind == "push" else None,
        consumer_group=backlog.name if backlog.kind == "ack" else None,
        partition=backlog.partition,
        messages=entry.messages,
        error=entry.error or "",
        accepted_at=timestamp(entry.created_at),
    )
