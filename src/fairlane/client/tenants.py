"""Tenants: create, limit and delete them as the operator, or show your own."""

from __future__ import annotations

from fairlane.client.resource import ClientResource
from fairlane.model.names import check_name
from fairlane.model.tenant import Quotas
from fairlane.wire.keys import KeyOptions, NewKey
from fairlane.wire.tenants import ListedTenant, Tenant, TenantBody, TenantDeleted, TenantDetail
from fairlane.wire.tenants import Tenants as TenantList

_NONE = Quotas()


class Tenants(ClientResource):
    async def own(self) -> TenantDetail:
        """Return the tenant of this client's key, with its quotas and usage."""
        return await self._call(TenantDetail, "GET", "tenant")

    async def all(self) -> list[ListedTenant]:
        """Return all tenants with their recent push rates, by name."""
        return (await self._call(TenantList, "GET", "tenants")).tenants

    async def show(self, name: str) -> TenantDetail:
        """Return a tenant with its quotas and usage. Raises NotFound."""
        return await self._call(TenantDetail, "GET", "tenants", check_name("tenant", name))

    async def create(self, name: str, quotas: Quotas = _NONE) -> Tenant:
        """Create a tenant. Raises AlreadyExists."""
        body = TenantBody(name=check_name("tenant", name), quotas=quotas)
        return await self._call(Tenant, "POST", "tenants", body=body)

    async def limit(self, name: str, quotas: Quotas) -> Tenant:
        """Replace all quotas of a tenant. Raises NotFound."""
        return await self._call(Tenant, "PUT", "tenants", check_name("tenant", name), body=quotas)

    async def delete(self, name: str) -> bool:
        """Delete a tenant without queues. Returns False if it does not exist.

        Raises Conflict if it has queues.
        """
        return (await self._call(TenantDeleted, "DELETE", "tenants", check_name("tenant", name))).deleted

    async def create_key(self, tenant: str, options: KeyOptions) -> NewKey:
        """Create a key of a tenant, for example its first. The secret is only in this answer."""
        return await self._call(NewKey, "POST", "tenants", check_name("tenant", tenant), "keys", body=options)
