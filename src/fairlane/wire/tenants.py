"""Tenants on the wire."""

from __future__ import annotations

import msgspec

from fairlane.model.moment import Moment
from fairlane.model.tenant import Quotas
from fairlane.wire.base import Answer, Body


class TenantBody(Body):
    name: str
    quotas: Quotas = msgspec.field(default_factory=Quotas)


class Used(Answer):
    """Current usage of a tenant, for every quota."""

    queues: int
    partitions: int
    groups: int
    schedules: int


class Tenant(Answer):
    name: str
    quotas: Quotas
    """Quotas of the tenant. Those that are not named have no limit."""
    created_at: Moment | None = None
    """Time of creation. Null for the default tenant, which always exists."""


class TenantDetail(Tenant):
    used: Used


class Tenants(Answer):
    tenants: list[Tenant]
    """Tenants by name."""


class TenantDeleted(Answer):
    name: str
    deleted: bool
