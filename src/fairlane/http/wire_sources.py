"""Shapes of sources."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.model.moment import timestamp, timestamp_or_none
from fairlane.model.source import RECORDS_MAX, Commit, Record, Source

Token = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class Wire(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """camelCase on the wire."""


class SourceLeaseBody(Wire, rename="camel", kw_only=True):
    seconds: int = 60
    token: Token | None = None
    """Of the lease to keep; without one another is taken."""


class SourceReleaseBody(Wire, rename="camel", kw_only=True):
    token: Token


class SourceReleased(Wire, rename="camel", kw_only=True):
    name: str
    released: bool


class SourceDeleted(Wire, rename="camel", kw_only=True):
    name: str
    deleted: bool


class SourceAnswer(Wire, rename="camel", kw_only=True):
    name: str
    revision: str
    """Another one after every commit; empty before the first."""
    cursor: str | None
    """Where reading new records goes on; null: at the beginning."""
    token: int
    """Of the newest lease."""
    leased_until: str | None
    created_at: str
    sweep: int
    """How many sweeps were begun."""
    sweeping: bool
    sweep_cursor: str | None
    swept_at: str | None
    committed_at: str | None
    records: int
    """How many are known."""


class SourceList(Wire, rename="camel", kw_only=True):
    sources: list[SourceAnswer]
    """By name."""


class RecordBody(Wire, rename="camel", kw_only=True):
    key: str
    hash: str
    """What has the same hash is the same."""
    data: msgspec.Raw
    partition: str | None = None
    """Of its messages; without one the key."""


class SourceCommitBody(Wire, rename="camel", kw_only=True):
    """One page: where reading goes on, and the records that were read."""

    token: Token
    before: str
    """The revision that it follows."""
    revision: str
    """The one that it makes; the same at every try."""
    queue: str
    cursor: str | None = None
    records: Annotated[list[RecordBody], msgspec.Meta(max_length=RECORDS_MAX)] = []
    type: str | None = None
    """Messages have the type `type.created` and so on; without one `created` and so on."""
    sweep: bool = False
    """A page of the sweep, which finds what changed and what is gone."""
    begin: bool = False
    """The first page of a sweep."""
    last: bool = False
    """All pages of the sweep were read: records that it did not see are gone."""


class SourceCommitted(Wire, rename="camel", kw_only=True):
    revision: str
    created: int
    changed: int
    unchanged: int
    deleted: int
    repeated: bool
    """It was done before, and nothing happened now."""
    more: bool
    """There may be more records that are gone: commit the last page again, without records."""


def commit_in(body: SourceCommitBody) -> Commit:
    return Commit(
        token=body.token,
        before=body.before,
        revision=body.revision,
        queue=body.queue,
        cursor=body.cursor,
        records=[
            Record(key=one.key, hash=one.hash, data=bytes(one.data), partition=one.partition) for one in body.records
        ],
        type=body.type,
        sweep=body.sweep,
        begin=body.begin,
        last=body.last,
    )


def source_out(source: Source) -> SourceAnswer:
    return SourceAnswer(
        name=source.name,
        revision=source.revision,
        cursor=source.cursor,
        token=source.token,
        leased_until=timestamp_or_none(source.leased_until),
        created_at=timestamp(source.created_at),
        sweep=source.sweep,
        sweeping=source.sweeping,
        sweep_cursor=source.sweep_cursor,
        swept_at=timestamp_or_none(source.swept_at),
        committed_at=timestamp_or_none(source.committed_at),
        records=source.records,
    )
