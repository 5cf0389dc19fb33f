"""Sources: how far somebody's records were read. `fairlane.poller` reads them."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

from fairlane.client.part import Part
from fairlane.model.names import check_name
from fairlane.wire import sources as wire


class Sources(Part):
    async def list(self) -> List[wire.SourceView]:
        """All, by name."""
        return (await self._ask(wire.SourceList, "GET", "sources")).sources

    async def get(self, name: str) -> wire.SourceView:
        """Raises NotFound."""
        return await self._ask(wire.SourceView, "GET", *_path(name))

    async def delete(self, name: str) -> bool:
        """Forget how far it was read, and its records; False if it was not there."""
        return (await self._ask(wire.SourceDeleted, "DELETE", *_path(name))).deleted

    async def lease(self, name: str, *, seconds: int = 60, token: int | None = None) -> wire.SourceView:
        """Take the lease, or keep the one with this token. Raises LeaseLost if that ended, Conflict while another has
        one."""
        body = wire.SourceLeaseBody(seconds=seconds, token=token)
        return await self._ask(wire.SourceView, "POST", *_path(name, "lease"), body=body)

    async def release(self, name: str, token: int) -> bool:
        """Give the lease back; False if it ended before."""
        body = wire.SourceReleaseBody(token=token)
        return (await self._ask(wire.SourceReleased, "POST", *_path(name, "release"), body=body)).released

    async def commit(self, name: str, page: wire.SourcePage) -> wire.SourceCommitted:
        """Commit a page: cursor, records and messages together. The same page again does nothing."""
        return await self._ask(wire.SourceCommitted, "POST", *_path(name, "commit"), body=page)


def _path(name: str, *verb: str) -> tuple[str, ...]:
    return "sources", check_name("name", name), *verb
