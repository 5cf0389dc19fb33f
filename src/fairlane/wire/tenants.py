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
    depth: int = 0
    """Messages that some group has not finished."""
    bytes: int = 0
    """Bytes of all stored and scheduled messages."""


class Pushed(Answer):
    """Rates of a tenant's pushes in the last minute, through the broker that answers."""

    messages_per_second: float = 0.0
    bytes_per_second: float = 0.0
    share: float = 0.0
    """Share of the messages of all tenants, from 0 to 1."""


class Tenant(Answer):
    name: str
    quotas: Quotas
    """Quotas of the tenant. Those that are not named have no limit."""
    created_at: Moment | None = None
    """Time of creation. Null for the default tenant, which always exists."""


class ListedTenant(Tenant):
    """A tenant as operators see it."""

    pushed: Pushed = msgspec.field(default_factory=Pushed)


class TenantDetail(Tenant):
    used: Used


class Tenants(Answer):
    tenants: list[ListedTenant]
    """Tenants by name."""


class TenantDeleted(Answer):
    name: str
    deleted: bool
