"""Sources: leased by a poller, committed page by page, looked at, forgotten."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.model.limits import REQUEST_BYTES_MAX
from fairlane.wire import sources as wire

routes = Routes("sources")
_ONE = "/api/v1/sources/{name}"
_LEASE = wire.SourceLeaseBody()


@routes.get("/api/v1/sources", live=True)
async def list_sources(broker: Broker) -> wire.SourceList:
    """All sources, by name: how far each was read, and what is known of it."""
    return wire.SourceList(sources=await broker.sources.list())


@routes.get(_ONE, live=True)
async def get(broker: Broker, name: str) -> wire.SourceView:
    """One source."""
    return await broker.sources.get(name)


@routes.delete(_ONE)
async def delete(broker: Broker, name: str) -> wire.SourceDeleted:
    """Forget a source and its records: the next poll reads it from the beginning."""
    return wire.SourceDeleted(name=name, deleted=await broker.sources.delete(name))


@routes.post(f"{_ONE}/lease")
async def lease(broker: Broker, name: str, body: wire.SourceLeaseBody = _LEASE) -> wire.SourceView:
    """Take the lease of a source, made if it is not there, or keep it; one poller has it at a time."""
    return await broker.sources.lease(name, seconds=body.seconds, token=body.token)


@routes.post(f"{_ONE}/release")
async def release(broker: Broker, name: str, body: wire.SourceReleaseBody) -> wire.SourceReleased:
    """Give the lease of a source back."""
    return wire.SourceReleased(name=name, released=await broker.sources.release(name, body.token))


@routes.post(f"{_ONE}/commit", body_bytes_max=REQUEST_BYTES_MAX)
async def commit(broker: Broker, name: str, body: wire.SourcePage) -> wire.SourceCommitted:
    """Commit a page: cursor, records and the messages of what is new, changed or gone, together and once."""
    return await broker.sources.commit(name, body)
