"""Sources: how far somebody's records were read. `fairlane.poller` reads them."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

from fairlane.client.part import Part
from fairlane.model.names import check_name
from fairlane.wire.sources import (
    SourceCommitted,
    SourceDeleted,
    SourceLeaseBody,
    SourceList,
    SourcePage,
    SourceReleaseBody,
    SourceReleased,
    SourceView,
)


class Sources(Part):
    async def list(self) -> List[SourceView]:
        """All, by name."""
        return (await self._ask(SourceList, "GET", "sources")).sources

    async def get(self, name: str) -> SourceView:
        """Raises NotFound."""
        return await self._ask(SourceView, "GET", *_path(name))

    async def delete(self, name: str) -> bool:
        """Forget how far it was read, and its records; False if it was not there."""
        return (await self._ask(SourceDeleted, "DELETE", *_path(name))).deleted

    async def lease(self, name: str, *, seconds: int = 60, token: int | None = None) -> SourceView:
        """Take the lease, or keep the one with this token. Raises LeaseLost if that ended, Conflict while another has
        one."""
        body = SourceLeaseBody(seconds=seconds, token=token)
        return await self._ask(SourceView, "POST", *_path(name, "lease"), body=body)

    async def release(self, name: str, token: int) -> bool:
        """Give the lease back; False if it ended before."""
        body = SourceReleaseBody(token=token)
        return (await self._ask(SourceReleased, "POST", *_path(name, "release"), body=body)).released

    async def commit(self, name: str, page: SourcePage) -> SourceCommitted:
        """Commit a page: cursor, records and messages together. The same page again does nothing."""
        return await self._ask(SourceCommitted, "POST", *_path(name, "commit"), body=page)


def _path(name: str, *verb: str) -> tuple[str, ...]:
    return "sources", check_name("name", name), *verb
