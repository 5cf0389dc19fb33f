"""Sources: lease, commit pages, list, show, delete."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.auth import scopes
from fairlane.http.router import Routes
from fairlane.model.limits import REQUEST_BYTES_MAX
from fairlane.model.principal import Principal
from fairlane.wire import sources as wire

routes = Routes("sources")
_ONE = "/api/v1/sources/{name}"
_LEASE = wire.SourceLeaseBody()


@routes.get("/api/v1/sources", needs="status", live=True)
async def list_sources(broker: Broker, query: wire.SourceListQuery) -> wire.SourceList:
    """List sources with their progress: all by name, or a page of matches."""
    return await broker.sources.page(query)


@routes.get(_ONE, needs="status push", live=True)
async def get(broker: Broker, name: str) -> wire.SourceView:
    """Show one source."""
    return await broker.sources.get(name)


@routes.delete(_ONE, needs="purge")
async def delete(broker: Broker, name: str) -> wire.SourceDeleted:
    """Delete a source and its records, so that the next poll starts from the beginning."""
    return wire.SourceDeleted(name=name, deleted=await broker.sources.delete(name))


@routes.post(f"{_ONE}/lease", needs="push", audited=False)
async def lease(broker: Broker, name: str, body: wire.SourceLeaseBody = _LEASE) -> wire.SourceView:
    """Take or renew the lease of a source, which is created if needed. One poller holds it at a time."""
    return await broker.sources.lease(name, seconds=body.seconds, token=body.token)


@routes.post(f"{_ONE}/release", needs="push", audited=False)
async def release(broker: Broker, name: str, body: wire.SourceReleaseBody) -> wire.SourceReleased:
    """Release the lease of a source."""
    return wire.SourceReleased(name=name, released=await broker.sources.release(name, body.token))


@routes.post(f"{_ONE}/commit", needs="push", audited=False, body_bytes_max=REQUEST_BYTES_MAX)
async def commit(broker: Broker, caller: Principal, name: str, body: wire.SourcePage) -> wire.SourceCommitted:
    """Commit a page in one transaction: cursor, records, and messages for new, changed and deleted records."""
    await scopes.check_pushes(broker, caller, [body.queue])
    return await broker.sources.commit(name, body)
