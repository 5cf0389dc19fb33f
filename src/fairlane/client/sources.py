"""Sources: the progress of pollers over someone else's records. `fairlane.poller` uses them."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.model.names import check_name
from fairlane.wire import sources as wire


class Sources(ClientResource):
    async def all(self) -> list[wire.SourceView]:
        """Return all sources by name."""
        return (await self._call(wire.SourceList, "GET", "sources")).sources

    async def get(self, name: str) -> wire.SourceView:
        """Return a source. Raises NotFound."""
        return await self._call(wire.SourceView, "GET", *_path(name))

    async def delete(self, name: str) -> bool:
        """Delete a source, its cursor and its records. Returns False if it does not exist."""
        return (await self._call(wire.SourceDeleted, "DELETE", *_path(name))).deleted

    async def lease(self, name: str, *, seconds: int = 60, token: int | None = None) -> wire.SourceView:
        """Take the lease of a source, or renew the one with this token.

        Raises LeaseLost if the lease has ended, and Conflict while another poller holds it.
        """
        body = wire.SourceLeaseBody(seconds=seconds, token=token)
        return await self._call(wire.SourceView, "POST", *_path(name, "lease"), body=body)

    async def release(self, name: str, token: int) -> bool:
        """Release the lease. Returns False if it had ended."""
        body = wire.SourceReleaseBody(token=token)
        return (await self._call(wire.SourceReleased, "POST", *_path(name, "release"), body=body)).released

    async def commit(self, name: str, page: wire.SourcePage) -> wire.SourceCommitted:
        """Commit a page: cursor, records and messages together. Committing the same page again does nothing."""
        return await self._call(wire.SourceCommitted, "POST", *_path(name, "commit"), body=page)


def _path(name: str, *verb: str) -> tuple[str, ...]:
    return "sources", check_name("name", name), *verb
