"""Specs: plan, apply, list, versions, export."""

from __future__ import annotations

import msgspec

from fairlane.broker.broker import Broker
from fairlane.broker.specs import may_see
from fairlane.errors import InvalidRequest
from fairlane.http.router import Routes
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.model.principal import ANYBODY, Principal
from fairlane.wire import specs as wire

routes = Routes("specs")
_ALL = "/api/v1/spec"


@routes.post(f"{_ALL}/plan", needs="spec", each=True, audited=False, body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def plan(broker: Broker, caller: Principal, body: wire.SpecPlanBody) -> wire.SpecPlan:
    """Show what applying a spec would change, and changes by other means, without applying it."""
    return await broker.specs.plan(bytes(body.spec), caller)


@routes.post(f"{_ALL}/apply", needs="spec", each=True, body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def apply(broker: Broker, caller: Principal, body: wire.SpecApplyBody) -> wire.SpecApplied:
    """Apply a spec in one transaction. Repeating it changes nothing."""
    return await broker.specs.apply(
        bytes(body.spec),
        source=body.source,
        by=body.applied_by if caller is ANYBODY else caller.name,
        consent=body.consent,
        version=body.version,
        caller=caller,
    )


@routes.get(_ALL, needs="spec status pop", each=True, live=True)
async def in_force(broker: Broker, caller: Principal, query: wire.SpecListQuery) -> wire.SpecList:
    """List the specs in force, one per app: all by app, or a page of matches."""
    # Workers read the specs of the queues that they pop from.
    return await broker.specs.page(query, lambda one: may_see(caller, one, "pop"))


@routes.get(f"{_ALL}/versions", needs="spec status", each=True, live=True)
async def versions(broker: Broker, caller: Principal, query: wire.SpecVersionsQuery) -> wire.SpecVersionList:
    """List all applied versions with their author, time and hash, newest first."""
    seen = await broker.specs.versions(query.app, before=query.before, limit=query.limit, caller=caller)
    return wire.SpecVersionList(versions=seen)


@routes.get(f"{_ALL}/versions/{{version}}", needs="spec status", each=True, live=True)
async def version(broker: Broker, caller: Principal, version: str) -> wire.SpecDetail:
    """Show one version with its text."""
    if not (version.isascii() and version.isdecimal() and len(version) <= 15):
        raise InvalidRequest(f"version is {version!r:.40}; it must be a whole number")
    found = await broker.specs.get(int(version))
    _check(caller, found)
    return found


@routes.get(f"{_ALL}/export", needs="spec status", each=True)
async def export(broker: Broker, caller: Principal, query: wire.SpecExportQuery) -> wire.SpecExported:
    """Export the current state of an app's queues as a spec."""
    for one in await broker.specs.all():
        if one.app == query.app:
            _check(caller, one)
    spec = await broker.specs.export(query.app)
    return wire.SpecExported(app=query.app, spec=msgspec.Raw(msgspec.json.encode(spec)))


def _check(caller: Principal, one: wire.SpecDetail) -> None:
    if not may_see(caller, one):
        caller.check("spec", one.app)
