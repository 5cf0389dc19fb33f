"""Tenants: made, limited and deleted by whoever runs the broker; and one's own."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name

from fairlane.client.part import Part
from fairlane.model.names import check_name
from fairlane.model.tenant import Quotas
from fairlane.wire.keys import KeyOptions, NewKey
from fairlane.wire.tenants import Tenant, TenantBody, TenantDeleted, TenantDetail
from fairlane.wire.tenants import Tenants as TenantList

_NONE = Quotas()


class Tenants(Part):
    async def own(self) -> TenantDetail:
        """That of the client's key, with its quotas and what it has."""
        return await self._ask(TenantDetail, "GET", "tenant")

    async def list(self) -> List[Tenant]:
        """By name."""
        return (await self._ask(TenantList, "GET", "tenants")).tenants

    async def show(self, name: str) -> TenantDetail:
        """Raises NotFound."""
        return await self._ask(TenantDetail, "GET", "tenants", check_name("tenant", name))

    async def create(self, name: str, quotas: Quotas = _NONE) -> Tenant:
        """Raises AlreadyExists."""
        body = TenantBody(name=check_name("tenant", name), quotas=quotas)
        return await self._ask(Tenant, "POST", "tenants", body=body)

    async def limit(self, name: str, quotas: Quotas) -> Tenant:
        """Give it these quotas in place of all that it had. Raises NotFound."""
        return await self._ask(Tenant, "PUT", "tenants", check_name("tenant", name), body=quotas)

    async def delete(self, name: str) -> bool:
        """Delete a tenant that has no queues any more; False if it is not there. Raises Conflict while it has some."""
        return (await self._ask(TenantDeleted, "DELETE", "tenants", check_name("tenant", name))).deleted

    async def create_key(self, tenant: str, options: KeyOptions) -> NewKey:
        """Make a key of a tenant, as its first one; its secret is in the answer and nowhere else."""
        return await self._ask(NewKey, "POST", "tenants", check_name("tenant", tenant), "keys", body=options)
