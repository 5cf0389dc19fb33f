"""Specs: plan, apply, those in force, all versions, export."""

from __future__ import annotations

import msgspec

from fairlane.broker.broker import Broker
from fairlane.errors import InvalidRequest
from fairlane.http.router import Routes
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.wire import specs as wire

routes = Routes("specs")
_ALL = "/api/v1/spec"


@routes.post(f"{_ALL}/plan", body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def plan(broker: Broker, body: wire.SpecPlanBody) -> wire.SpecPlan:
    """What applying a spec would change, and what was changed otherwise; nothing is done."""
    return await broker.specs.plan(bytes(body.spec))


@routes.post(f"{_ALL}/apply", body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def apply(broker: Broker, body: wire.SpecApplyBody) -> wire.SpecApplied:
    """Put a spec in force, all of it in one transaction; the same again changes nothing."""
    return await broker.specs.apply(
        bytes(body.spec), source=body.source, by=body.applied_by, consent=body.consent, version=body.version
    )


@routes.get(_ALL, live=True)
async def in_force(broker: Broker) -> wire.SpecList:
    """The specs in force, one of each app."""
    return wire.SpecList(specs=await broker.specs.list())


@routes.get(f"{_ALL}/versions", live=True)
async def versions(broker: Broker, query: wire.SpecVersionsQuery) -> wire.SpecVersionList:
    """Everything that was applied, newest first: who, when, and the hash of what."""
    return wire.SpecVersionList(versions=await broker.specs.versions(query))


@routes.get(f"{_ALL}/versions/{{version}}", live=True)
async def version(broker: Broker, version: str) -> wire.SpecDetail:
    """One version, with its text."""
    if not (version.isascii() and version.isdecimal() and len(version) <= 15):
        raise InvalidRequest(f"version is {version!r:.40}; it must be a whole number")
    return await broker.specs.get(int(version))


@routes.get(f"{_ALL}/export")
async def export(broker: Broker, query: wire.SpecExportQuery) -> wire.SpecExported:
    """The spec of an app as its queues are now."""
    spec = await broker.specs.export(query.app)
    return wire.SpecExported(app=query.app, spec=msgspec.Raw(msgspec.json.encode(spec)))
