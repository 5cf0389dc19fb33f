"""Sources: how far somebody's records were read. `fairlane.poller` reads them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.client.family import Family
from fairlane.client.transport import path_of
from fairlane.client.views import SourceCommitted, SourceView
from fairlane.client.wire import decode
from fairlane.model.names import check_name
from fairlane.wire.base import encode


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record as it was read. What has the same hash is the same."""

    key: str
    hash: str
    data: msgspec.Raw
    partition: str | None = None
    """Of its messages; None: the key."""


class SourcePage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One page of a source: where reading goes on, and the records that were read."""

    token: int
    before: str
    revision: str
    queue: str
    cursor: str | None = None
    records: Sequence[SourceRecord] = ()
    type: str | None = None
    sweep: bool = False
    begin: bool = False
    last: bool = False


class _Listed(msgspec.Struct):
    sources: list[SourceView]


class _Deleted(msgspec.Struct):
    deleted: bool = False


class _Released(msgspec.Struct):
    released: bool = False


class Sources(Family):
    async def sources(self) -> list[SourceView]:
        """All, by name."""
        return decode(await self._transport.ask("GET", path_of("sources")), _Listed).sources

    async def source(self, name: str) -> SourceView:
        """Raises NotFound."""
        return decode(await self._transport.ask("GET", _path(name)), SourceView)

    async def delete_source(self, name: str) -> bool:
        """Forget how far it was read, and its records; False if it was not there."""
        return decode(await self._transport.ask("DELETE", _path(name)), _Deleted).deleted

    async def lease_source(self, name: str, *, seconds: int = 60, token: int | None = None) -> SourceView:
        """Take the lease, or keep the one with this token. Raises LeaseLost if that ended, Conflict while another has
        one."""
        body = {"seconds": seconds, "token": token}
        return decode(await self._transport.ask("POST", _path(name, "lease"), body=encode(body)), SourceView)

    async def release_source(self, name: str, token: int) -> bool:
        """Give the lease back; False if it ended before."""
        body = encode({"token": token})
        return decode(await self._transport.ask("POST", _path(name, "release"), body=body), _Released).released

    async def commit_source(self, name: str, page: SourcePage) -> SourceCommitted:
        """Commit a page: cursor, records and messages together. The same page again does nothing."""
        answer = await self._transport.ask("POST", _path(name, "commit"), body=encode(page))
        return decode(answer, SourceCommitted)


def _path(name: str, *verb: str) -> str:
    return path_of("sources", check_name("name", name), *verb)
