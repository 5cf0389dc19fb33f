"""Tenants and their quotas."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.model.moment import Moment

Quota = Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None


class Quotas(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Quotas of a tenant. Null means no limit."""

    queues: Quota = None
    partitions: Quota = None
    groups: Quota = None
    schedules: Quota = None
    depth: Quota = None
    """Messages that some group has not finished, over all queues, as counted some seconds ago."""
    bytes: Quota = None
    """Bytes of all stored and scheduled messages, as measured some seconds ago.

    Other data, such as effects, traces, schedules and specs, may take the same amount again.
    """
    connections: Quota = None
    """Connections whose last request was from this tenant, in each process."""
    polls: Quota = None
    """Waiting pops at one time, in each process."""
    requests_per_second: Quota = None
    """Requests per second, in each process."""
    messages_per_second: Quota = None
    """Pushed messages per second, in each process."""
    bytes_per_second: Quota = None
    """Bytes of pushed payloads per second, in each process."""
    expression_work_per_second: Quota = None
    """Bytes that the expressions of its specs read, copy or compare per second, in each process."""


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    quotas: Quotas
    created_at: Moment | None
    """Time of creation. Null for the default tenant, which always exists."""
