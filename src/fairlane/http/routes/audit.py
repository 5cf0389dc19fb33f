"""The audit log: its entries, and whether it is whole."""

from __future__ import annotations

from fairlane.broker.broker import Broker
from fairlane.http.router import Routes
from fairlane.model.access import Caller
from fairlane.model.names import DEFAULT_TENANT
from fairlane.wire.audit import AuditPage, AuditQuery, AuditVerified

routes = Routes("audit")


@routes.get("/api/v1/audit", needs="system", live=True)
async def list_entries(broker: Broker, caller: Caller, query: AuditQuery) -> AuditPage:
    """Who did what, newest first: administrative actions and refusals. The default tenant sees those of all."""
    return await broker.audit.page(query, None if caller.tenant == DEFAULT_TENANT else caller.tenant)


@routes.get("/api/v1/audit/verify", needs="system", operator=True)
async def verify(broker: Broker) -> AuditVerified:
    """Whether every entry is as it was written, and none is missing."""
    return await broker.audit.verify()
