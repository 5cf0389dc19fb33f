"""Sources on the wire: collections of records of other services, and the progress of reading them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import COUNT_MAX, TYPE_CHARS_MAX
from fairlane.model.moment import Moment
from fairlane.model.names import check_count, check_name, name_or_none
from fairlane.wire.base import Answer, Body, ListQuery

RECORDS_MAX = 1000
"""Largest number of records in one commit, which is a page of an API."""
CURSOR_CHARS_MAX = 8192  # a cursor may be a whole URL
HASH_CHARS_MAX = 128
Token = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]


class SourceView(Answer):
    """A source: its progress, and the poller that reads it."""

    name: str
    revision: str
    """Revision, which changes with every commit. Empty before the first."""
    cursor: str | None
    """Cursor of the next new records. Null at the beginning."""
    token: int
    """Token of the newest lease. It is greater than all earlier tokens."""
    leased_until: Moment | None
    created_at: Moment
    sweep: int
    """Number of sweeps that were started."""
    sweeping: bool
    sweep_cursor: str | None
    """Cursor of the sweep. Null at the beginning."""
    swept_at: Moment | None
    """Time of the end of the last sweep."""
    committed_at: Moment | None
    records: int
    """Number of known records."""


class SourceListQuery(ListQuery):
    sort: Literal["name", "records", "committed"] = "name"


class SourceList(Answer):
    sources: list[SourceView]
    total: int = 0
    """Number of sources on all pages."""


class SourceLeaseBody(Body):
    seconds: int = 60
    token: Token | None = None
    """Token of the lease to renew. Without it, a new lease is taken."""


class SourceReleaseBody(Body):
    token: Token


class SourceReleased(Answer):
    name: str
    released: bool


class SourceDeleted(Answer):
    name: str
    deleted: bool


class SourceRecord(Body, omit_defaults=True):
    """A record as the poller read it.

    Records with the same hash are the same. The part after a `#` names the rule of the hash; hashes of different rules
    cannot be compared.
    """

    key: str
    hash: str
    data: msgspec.Raw
    partition: str | None = None
    """Partition of its messages. The default is the key."""

    def changed_from(self, hash: str) -> bool:
        return self.hash != hash and self.hash.partition("#")[2] == hash.partition("#")[2]

    def check(self) -> None:
        check_name("key", self.key)
        check_name("hash", self.hash, chars_max=HASH_CHARS_MAX)
        name_or_none("partition", self.partition)


class SourcePage(Body, omit_defaults=True):
    """One page of a source: the records, and the cursor to continue with.

    It belongs to the sweep if `sweep` is set, and otherwise to the reading of new records.
    """

    token: Token
    before: str
    """Revision that the page follows."""
    revision: str
    """Revision that the page creates. It is the same in every retry."""
    queue: str
    cursor: str | None = None
    records: Annotated[list[SourceRecord], msgspec.Meta(max_length=RECORDS_MAX)] = msgspec.field(default_factory=list)
    type: str | None = None
    """Prefix of message types, as in `type.created`. None for plain `created` and so on."""
    sweep: bool = False
    """True for a page of the sweep, which finds changed and deleted records."""
    begin: bool = False
    """True for the first page of a sweep."""
    last: bool = False
    """True if the sweep has read all pages. Records that it did not see are deleted."""
    trace_context: dict[str, str] = msgspec.field(default_factory=dict)
    """Headers `traceparent` and `tracestate` for its messages."""

    def check(self) -> SourcePage:
        check_count("token", self.token, least=0, most=COUNT_MAX)
        check_name("queue", self.queue)
        check_name("revision", self.revision)
        if self.before:
            check_name("before", self.before)
        if self.before == self.revision:
            raise InvalidRequest("a commit makes another revision than the one it follows")
        name_or_none("cursor", self.cursor, chars_max=CURSOR_CHARS_MAX)
        name_or_none("type", self.type, chars_max=TYPE_CHARS_MAX - len(".created"))
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
    """True if the commit was applied before. Nothing changed now."""
    more: bool = False
    """True if there may be more deleted records. Commit the last page again, without records."""
