"""Tenants: create, limit, show and delete, for operators; and the caller's own tenant."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes, respond
from fairlane.http.server import Response
from fairlane.model.principal import Principal
from fairlane.model.tenant import Quotas
from fairlane.wire import tenants as wire
from fairlane.wire.keys import KeyOptions, NewKey

routes = Routes("tenants")
_ALL = "/api/v1/tenants"
_ONE = f"{_ALL}/{{tenant}}"


@routes.get("/api/v1/tenant", needs="status", live=True)
async def show_own(broker: Broker) -> wire.TenantDetail:
    """Show the caller's tenant with its quotas and usage."""
    return await broker.tenants.show(broker.tenant)


@routes.get(_ALL, needs="system", operator=True, live=True)
async def list_tenants(broker: Broker) -> wire.Tenants:
    """List all tenants, by name."""
    return wire.Tenants(tenants=await broker.tenants.all())


@routes.post(_ALL, needs="system", operator=True, answer=wire.Tenant, statuses=(201,))
async def create(broker: Broker, body: wire.TenantBody) -> Response:
    """Create a tenant, without queues and keys."""
    return respond(await broker.tenants.create(body.name, body.quotas), 201)


@routes.get(_ONE, needs="system", operator=True, live=True)
async def show(broker: Broker, tenant: str) -> wire.TenantDetail:
    """Show a tenant with its quotas and usage."""
    return await broker.tenants.show(tenant)


@routes.put(_ONE, needs="system", operator=True)
async def limit(broker: Broker, tenant: str, body: Quotas) -> wire.Tenant:
    """Replace all quotas of a tenant."""
    return await broker.tenants.limit(tenant, body)


@routes.delete(_ONE, needs="system", operator=True)
async def delete(broker: Broker, tenant: str) -> wire.TenantDeleted:
    """Delete a tenant without queues, with its specs, schedules, sources, streams and keys."""
    return wire.TenantDeleted(name=tenant, deleted=await broker.tenants.delete(tenant))


@routes.post(f"{_ONE}/keys", needs="keys", operator=True, answer=NewKey, statuses=(201,))
async def create_key(broker: Broker, caller: Principal, tenant: str, body: KeyOptions) -> Response:
    """Create a key for a tenant. The answer has its secret, which is never shown again."""
    caller.check("system")
    await broker.tenants.show(tenant)
    made = await broker.of(tenant).keys.create(
        body.name, role=body.role, scopes=body.scopes, expires_at=body.expires_at, caller=caller
    )
    return respond(made, 201)
