"""Tenants: made, limited and deleted by whoever runs the broker; and one's own."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes, respond
from fairlane.http.server import Response
from fairlane.model.access import Caller
from fairlane.model.tenant import Quotas
from fairlane.wire import tenants as wire
from fairlane.wire.keys import KeyOptions, NewKey

routes = Routes("tenants")
_ALL = "/api/v1/tenants"
_ONE = f"{_ALL}/{{tenant}}"


@routes.get("/api/v1/tenant", needs="status", live=True)
async def show_own(broker: Broker) -> wire.TenantDetail:
    """The caller's tenant, with its quotas and what it has."""
    return await broker.tenants.show(broker.tenant)


@routes.get(_ALL, needs="system", operator=True, live=True)
async def list_tenants(broker: Broker) -> wire.Tenants:
    """All tenants, by name."""
    return wire.Tenants(tenants=await broker.tenants.list())


@routes.post(_ALL, needs="system", operator=True, answer=wire.Tenant, statuses=(201,))
async def create(broker: Broker, body: wire.TenantBody) -> Response:
    """Make a tenant. It has nothing yet, not even a key."""
    return respond(await broker.tenants.create(body.name, body.quotas), 201)


@routes.get(_ONE, needs="system", operator=True, live=True)
async def show(broker: Broker, tenant: str) -> wire.TenantDetail:
    """A tenant, with its quotas and what it has."""
    return await broker.tenants.show(tenant)


@routes.put(_ONE, needs="system", operator=True)
async def limit(broker: Broker, tenant: str, body: Quotas) -> wire.Tenant:
    """Give a tenant these quotas in place of all that it had."""
    return await broker.tenants.limit(tenant, body)


@routes.delete(_ONE, needs="system", operator=True)
async def delete(broker: Broker, tenant: str) -> wire.TenantDeleted:
    """Delete a tenant that has no queues any more, with its specs, schedules, sources, streams and keys."""
    return wire.TenantDeleted(name=tenant, deleted=await broker.tenants.delete(tenant))


@routes.post(f"{_ONE}/keys", needs="keys", operator=True, answer=NewKey, statuses=(201,))
async def create_key(broker: Broker, caller: Caller, tenant: str, body: KeyOptions) -> Response:
    """Make a key of a tenant, as its first one. Its secret is in the answer, and is never shown again."""
    caller.check("system")
    await broker.tenants.show(tenant)
    made = await broker.of(tenant).keys.create(
        body.name, role=body.role, scopes=body.scopes, expires_at=body.expires_at, caller=caller
    )
    return respond(made, 201)
