"""Specs: plan, apply, those in force, all versions, export."""

from __future__ import annotations

import msgspec

from fairlane.broker.broker import Broker
from fairlane.broker.specs import may_see
from fairlane.errors import InvalidRequest
from fairlane.http.router import Routes
from fairlane.model.access import ANYBODY, Caller
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.wire import specs as wire

routes = Routes("specs")
_ALL = "/api/v1/spec"


@routes.post(f"{_ALL}/plan", needs="spec", each=True, audited=False, body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def plan(broker: Broker, caller: Caller, body: wire.SpecPlanBody) -> wire.SpecPlan:
    """What applying a spec would change, and what was changed otherwise; nothing is done."""
    return await broker.specs.plan(bytes(body.spec), caller)


@routes.post(f"{_ALL}/apply", needs="spec", each=True, body_bytes_max=2 * MESSAGE_BYTES_MAX)
async def apply(broker: Broker, caller: Caller, body: wire.SpecApplyBody) -> wire.SpecApplied:
    """Put a spec in force, all of it in one transaction; the same again changes nothing."""
    return await broker.specs.apply(
        bytes(body.spec),
        source=body.source,
        by=body.applied_by if caller is ANYBODY else caller.name,
        consent=body.consent,
        version=body.version,
        caller=caller,
    )


@routes.get(_ALL, needs="spec status pop", each=True, live=True)
async def in_force(broker: Broker, caller: Caller, query: wire.SpecListQuery) -> wire.SpecList:
    """The specs in force, one of each app: all by app, or a page of those that are searched for."""
    # A worker knows its messages by the specs of the queues that it pops from.
    return await broker.specs.page(query, lambda one: may_see(caller, one, "pop"))


@routes.get(f"{_ALL}/versions", needs="spec status", each=True, live=True)
async def versions(broker: Broker, caller: Caller, query: wire.SpecVersionsQuery) -> wire.SpecVersionList:
    """Everything that was applied, newest first: who, when, and the hash of what."""
    seen = await broker.specs.versions(query.app, before=query.before, limit=query.limit, caller=caller)
    return wire.SpecVersionList(versions=seen)


@routes.get(f"{_ALL}/versions/{{version}}", needs="spec status", each=True, live=True)
async def version(broker: Broker, caller: Caller, version: str) -> wire.SpecDetail:
    """One version, with its text."""
    if not (version.isascii() and version.isdecimal() and len(version) <= 15):
        raise InvalidRequest(f"version is {version!r:.40}; it must be a whole number")
    found = await broker.specs.get(int(version))
    _check(caller, found)
    return found


@routes.get(f"{_ALL}/export", needs="spec status", each=True)
async def export(broker: Broker, caller: Caller, query: wire.SpecExportQuery) -> wire.SpecExported:
    """The spec of an app as its queues are now."""
    for one in await broker.specs.list():
        if one.app == query.app:
            _check(caller, one)
    spec = await broker.specs.export(query.app)
    return wire.SpecExported(app=query.app, spec=msgspec.Raw(msgspec.json.encode(spec)))


def _check(caller: Caller, one: wire.SpecDetail) -> None:
    if not may_see(caller, one):
        caller.check("spec", one.app)
