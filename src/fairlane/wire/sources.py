"""Sources on the wire: collections of records that somebody else keeps, and what is known of them here."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import COUNT_MAX, TYPE_CHARS_MAX
from fairlane.model.moment import Moment
from fairlane.model.names import check_count, check_name
from fairlane.wire.base import Answer, Body, ListQuery

RECORDS_MAX = 1000
"""Of one commit: a page of somebody's API."""
CURSOR_CHARS_MAX = 8192  # a cursor may be a whole URL
HASH_CHARS_MAX = 128
Token = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]


class SourceView(Answer):
    """A source: how far its records were read, and who reads them."""

    name: str
    revision: str
    """Another one after every commit; empty before the first."""
    cursor: str | None
    """Where reading new records goes on; null: at the beginning."""
    token: int
    """Of the newest lease: greater than every token before it."""
    leased_until: Moment | None
    created_at: Moment
    sweep: int
    """How many sweeps were begun."""
    sweeping: bool
    sweep_cursor: str | None
    """Where the sweep goes on; null: at the beginning."""
    swept_at: Moment | None
    """When the last sweep ended."""
    committed_at: Moment | None
    records: int
    """How many are known."""


class SourceListQuery(ListQuery):
    sort: Literal["name", "records", "committed"] = "name"


class SourceList(Answer):
    sources: list[SourceView]
    total: int = 0
    """How many there are, on all pages."""


class SourceLeaseBody(Body):
    seconds: int = 60
    token: Token | None = None
    """Of the lease to keep; without one another is taken."""


class SourceReleaseBody(Body):
    token: Token


class SourceReleased(Answer):
    name: str
    released: bool


class SourceDeleted(Answer):
    name: str
    deleted: bool


class SourceRecord(Body, omit_defaults=True):
    """A record as it was read. What has the same hash is the same; behind a `#` may stand by which rule it was made:
    hashes of different rules tell nothing of each other."""

    key: str
    hash: str
    data: msgspec.Raw
    partition: str | None = None
    """Of its messages; without one the key."""

    def changed_from(self, hash: str) -> bool:
        return self.hash != hash and self.hash.partition("#")[2] == hash.partition("#")[2]

    def check(self) -> None:
        check_name("key", self.key)
        check_name("hash", self.hash, chars_max=HASH_CHARS_MAX)
        if self.partition is not None:
            check_name("partition", self.partition)


class SourcePage(Body, omit_defaults=True):
    """One page of a source: where reading goes on, and the records that were read. It is of the sweep if that is said,
    and of the reading of new records otherwise."""

    token: Token
    before: str
    """The revision that it follows."""
    revision: str
    """The one that it makes; the same at every try."""
    queue: str
    cursor: str | None = None
    records: Annotated[list[SourceRecord], msgspec.Meta(max_length=RECORDS_MAX)] = msgspec.field(default_factory=list)
    type: str | None = None
    """Messages have the type `type.created` and so on; without one `created` and so on."""
    sweep: bool = False
    """A page of the sweep, which finds what changed and what is gone."""
    begin: bool = False
    """The first page of a sweep."""
    last: bool = False
    """All pages of the sweep were read: records that it did not see are gone."""
    trace_context: dict[str, str] = msgspec.field(default_factory=dict)
    """For the headers of its messages: `traceparent` and `tracestate`."""

    def check(self) -> SourcePage:
        check_count("token", self.token, least=0, most=COUNT_MAX)
        check_name("queue", self.queue)
        check_name("revision", self.revision)
        if self.before:
            check_name("before", self.before)
        if self.before == self.revision:
            raise InvalidRequest("a commit makes another revision than the one it follows")
        if self.cursor is not None:
            check_name("cursor", self.cursor, chars_max=CURSOR_CHARS_MAX)
        if self.type is not None:
            check_name("type", self.type, chars_max=TYPE_CHARS_MAX - len(".created"))
        if not self.sweep and (self.begin or self.last):
            raise InvalidRequest("begin and last are words of a sweep")
        if len(self.records) > RECORDS_MAX:
            raise InvalidRequest(f"a commit may have {RECORDS_MAX} records, not {len(self.records)}")
        for record in self.records:
            record.check()
        return self


class SourceCommitted(Answer):
    """The result of the commit of a page."""

    revision: str
    created: int = 0
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0
    repeated: bool = False
    """It was done before, and nothing happened now."""
    more: bool = False
    """There may be more records that are gone: commit the last page again, without records."""
