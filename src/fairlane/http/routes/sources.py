"""Sources: leased by a poller, committed page by page, looked at, forgotten."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http import scopes
from fairlane.http.router import Routes
from fairlane.model.access import Caller
from fairlane.model.limits import REQUEST_BYTES_MAX
from fairlane.wire import sources as wire

routes = Routes("sources")
_ONE = "/api/v1/sources/{name}"
_LEASE = wire.SourceLeaseBody()


@routes.get("/api/v1/sources", needs="status", live=True)
async def list_sources(broker: Broker, query: wire.SourceListQuery) -> wire.SourceList:
    """Sources and how far each was read: all by name, or a page of those that are searched for."""
    return await broker.sources.page(query)


@routes.get(_ONE, needs="status push", live=True)
async def get(broker: Broker, name: str) -> wire.SourceView:
    """One source."""
    return await broker.sources.get(name)


@routes.delete(_ONE, needs="purge")
async def delete(broker: Broker, name: str) -> wire.SourceDeleted:
    """Forget a source and its records: the next poll reads it from the beginning."""
    return wire.SourceDeleted(name=name, deleted=await broker.sources.delete(name))


@routes.post(f"{_ONE}/lease", needs="push", audited=False)
async def lease(broker: Broker, name: str, body: wire.SourceLeaseBody = _LEASE) -> wire.SourceView:
    """Take the lease of a source, made if it is not there, or keep it; one poller has it at a time."""
    return await broker.sources.lease(name, seconds=body.seconds, token=body.token)


@routes.post(f"{_ONE}/release", needs="push", audited=False)
async def release(broker: Broker, name: str, body: wire.SourceReleaseBody) -> wire.SourceReleased:
    """Give the lease of a source back."""
    return wire.SourceReleased(name=name, released=await broker.sources.release(name, body.token))


@routes.post(f"{_ONE}/commit", needs="push", audited=False, body_bytes_max=REQUEST_BYTES_MAX)
async def commit(broker: Broker, caller: Caller, name: str, body: wire.SourcePage) -> wire.SourceCommitted:
    """Commit a page: cursor, records and the messages of what is new, changed or gone, together and once."""
    await scopes.check_pushes(broker, caller, [body.queue])
    return await broker.sources.commit(name, body)
