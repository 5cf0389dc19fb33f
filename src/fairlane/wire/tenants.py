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
    """Counts of what a tenant has, where there may be a quota of it."""

    queues: int
    partitions: int
    groups: int
    schedules: int


class Tenant(Answer):
    name: str
    quotas: Quotas
    """Those that are not named are not limited."""
    created_at: Moment | None = None
    """Null of the default one, which is always there."""


class TenantDetail(Tenant):
    used: Used


class Tenants(Answer):
    tenants: list[Tenant]
    """By name."""


class TenantDeleted(Answer):
    name: str
    deleted: bool
