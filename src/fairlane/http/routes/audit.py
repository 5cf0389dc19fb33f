"""The audit log: its entries and its verification."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.model.names import DEFAULT_TENANT
from fairlane.model.principal import Principal
from fairlane.wire.audit import AuditPage, AuditQuery, AuditVerified

routes = Routes("audit")


@routes.get("/api/v1/audit", needs="system", live=True)
async def list_entries(broker: Broker, caller: Principal, query: AuditQuery) -> AuditPage:
    """List administrative actions and refusals, newest first. The default tenant sees all tenants."""
    return await broker.audit.page(query, None if caller.tenant == DEFAULT_TENANT else caller.tenant)


@routes.get("/api/v1/audit/verify", needs="system", operator=True)
async def verify(broker: Broker) -> AuditVerified:
    """Verify that every entry is unchanged and none is missing."""
    return await broker.audit.verify()
