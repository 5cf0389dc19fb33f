"""Sources: collections of records that somebody else keeps, and what is known of them here."""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.limits import COUNT_MAX, TYPE_CHARS_MAX
from fairlane.model.names import check_count, check_name

Event = Literal["created", "changed", "deleted"]
RECORDS_MAX = 1000
"""Of one commit: a page of somebody's API."""
CURSOR_CHARS_MAX = 8192  # a cursor may be a whole URL
HASH_CHARS_MAX = 128


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A source: how far its records were read, and who reads them."""

    id: int
    tenant: str
    name: str
    revision: str
    """Another one after every commit; empty before the first."""
    cursor: str | None
    """Where reading new records goes on; None: at the beginning."""
    token: int
    """Of the newest lease: greater than every token before it."""
    leased_until: int | None
    created_at: int
    sweep: int
    """How many sweeps were begun."""
    sweeping: bool
    sweep_cursor: str | None
    """Where the sweep goes on; None: at the beginning."""
    swept_at: int | None
    """When the last sweep ended."""
    committed_at: int | None
    records: int
    """How many are known."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it was read. What has the same hash is the same; behind a `#` may stand by which rule it was made:
    hashes of different rules tell nothing of each other."""

    key: str
    hash: str
    data: bytes
    partition: str | None = None
    """Of its messages; None: the key."""

    def changed_from(self, hash: str) -> bool:
        return self.hash != hash and self.hash.partition("#")[2] == hash.partition("#")[2]

    def check(self) -> Record:
        check_name("key", self.key)
        check_name("hash", self.hash, chars_max=HASH_CHARS_MAX)
        if self.partition is not None:
            check_name("partition", self.partition)
        return self


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit of one page of a source: where reading goes on, and the records that were read. It is of the sweep if
    that is said, and of the reading of new records otherwise."""

    token: int
    before: str
    """The revision that it follows."""
    revision: str
    """The one that it makes; the same at every try."""
    queue: str
    cursor: str | None
    records: list[Record]
    type: str | None = None
    """Messages have the type `type.created` and so on; without one `created` and so on."""
    sweep: bool = False
    begin: bool = False
    """Of a sweep: this is its first page."""
    last: bool = False
    """Of a sweep: all pages were read, so that records which it did not see are gone."""

    def check(self) -> Commit:
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


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a commit. `repeated`: it was done before, and nothing happened now."""

    revision: str
    created: int = 0
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0
    repeated: bool = False
    more: bool = False
    """Of the last page of a sweep: there may be more records that are gone; commit it again, without records."""


class SourceStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a source from one revision to the next, as the store takes it."""

    source_id: int
    tenant: str
    name: str
    token: int
    before: str
    revision: str
    cursor: str | None
    sweep: int
    sweeping: bool
    sweep_cursor: str | None
    swept: bool
    """A sweep ends with this step."""
    seen: list[tuple[str, str]]
    """Key and hash of every record that was read; they are marked with `sweep`."""
    gone: list[str]
    """Keys of records to forget."""
    records: int
    """How many are known afterwards."""
