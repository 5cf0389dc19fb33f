"""Tenants: whose queues they are, and the quotas that each has."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.model.moment import Moment

Quota = Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None


class Quotas(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Quotas of a tenant; null: as much as it likes."""

    queues: Quota = None
    partitions: Quota = None
    groups: Quota = None
    schedules: Quota = None
    depth: Quota = None
    """Messages that some group has not finished, over all queues, as they were counted some seconds ago."""
    bytes: Quota = None
    """Bytes of all messages that are stored or scheduled, measured some seconds ago. What is stored beside messages,
    as effects, traces, schedules and specs, may be as many bytes again."""
    connections: Quota = None
    """Whose last request was one of the tenant, at each process."""
    polls: Quota = None
    """Pops that wait at once, at each process."""
    requests_per_second: Quota = None
    """At each process."""
    expression_work_per_second: Quota = None
    """Of the expressions of its specs, at each process: bytes that they read, copy or compare."""


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    quotas: Quotas
    created_at: Moment | None
    """Null of the default one, which is always there."""
