"""Specs: planned against the current state, and applied in one transaction."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from fairlane.broker.cells import check_complete
from fairlane.broker.compiled_specs import CompiledSpecs
from fairlane.broker.paging import page_of
from fairlane.broker.resource import Resource
from fairlane.errors import Conflict, ConsentNeeded, InvalidRequest, NotFound, OutcomeUnknown
from fairlane.model.ids import uuid7
from fairlane.model.moment import Moment
from fairlane.model.names import check_name, name_or_none
from fairlane.model.principal import ANYBODY, Principal
from fairlane.model.queue import SAME_AS, QueueOptions
from fairlane.runtime.ticks import next_tick
from fairlane.spec import ir
from fairlane.spec.affected_queues import declared_queues, target_queues
from fairlane.spec.check import check
from fairlane.spec.declarations.schedule import options_of, schedule_of
from fairlane.spec.plan import plan
from fairlane.store.families.schedules import Schedule
from fairlane.store.families.specs import QueueChange, SpecChange
from fairlane.wire.specs import Change, SpecApplied, SpecDetail, SpecHead, SpecList, SpecListQuery, SpecPlan

SPEC_BYTES_MAX = 1024 * 1024
"""Largest size of a document, and of the text that it was compiled from."""
_ROUNDS_MAX = 5

_decode = msgspec.json.Decoder(ir.Spec).decode


class CurrentState(NamedTuple):
    """The tenant's queues, groups and schedules, by name."""

    queues: dict[str, QueueOptions]
    schedules: dict[str, ir.ScheduleSpec]


class _Planned(msgspec.Struct, frozen=True, kw_only=True):
    plan: SpecPlan
    in_force: SpecDetail | None
    recorded: ir.Spec | None
    there: CurrentState


def may_see(caller: Principal, one: SpecDetail, *scopes: str) -> bool:
    """Return True if the caller may see a spec: by its app, or by one of its queues, with `status` or a scope."""
    of = ("status", *scopes)
    if caller.allows("spec", one.app) or any(map(caller.allows_all, of)):
        return True
    return any(caller.allows(scope, queue) for scope in of for queue in one.spec.get("queues", {}))


class Specs(Resource):
    """The specs of a tenant."""

    @property
    def compiled(self) -> CompiledSpecs:
        return self._scope.compiled_specs

    async def load(self) -> None:
        """Load the specs in force unless they are loaded.

        While the store is unavailable, a broker with a journal continues without them.
        """
        await self._scope.intake.load_specs()

    async def all(self) -> list[SpecDetail]:
        """Return the specs in force: the latest version of each app, by name."""
        return await self._store.specs.in_force(self._tenant)

    async def page(self, query: SpecListQuery, may_see: Callable[[SpecDetail], bool]) -> SpecList:
        """Return a page of the visible specs."""
        shown, total = page_of(
            filter(may_see, await self.all()),
            query,
            text=lambda one: one.app,
            up={"app": lambda one: one.app},
            down={"applied": lambda one: one.applied_at},
        )
        return SpecList(specs=shown, total=total)

    async def versions(
        self,
        app: str | None = None,
        *,
        before: int | None = None,
        limit: int = 100,
        caller: Principal = ANYBODY,
    ) -> list[SpecHead]:
        """Return versions without their texts, newest first, of apps whose spec in force the caller may see."""
        apps = None if (app := name_or_none("app", app)) is None else [app]
        if not (caller.allows_all("spec") or caller.allows_all("status")):
            apps = [one.app for one in await self.all() if may_see(caller, one) and app in (None, one.app)]
        return await self._store.specs.versions(self._tenant, apps=apps, before=before, limit=limit)

    async def get(self, version: int) -> SpecDetail:
        found = await self._store.specs.get(self._tenant, version)
        if found is None:
            raise NotFound(f"there is no version {version} of a spec")
        return found

    async def export(self, app: str) -> ir.Spec:
        """Return the current state of an app as a spec, with changes by others. Raises NotFound."""
        check_name("app", app)
        in_force = {version.app: version for version in await self.all()}
        if app not in in_force:
            raise NotFound(f"there is no app {app!r:.80}")
        recorded = _decode(in_force[app].raw)
        return _actual(recorded, recorded, await self._current_state())

    async def plan(self, spec: bytes, caller: Principal = ANYBODY) -> SpecPlan:
        return (await self._plan(await self._checked(spec, caller))).plan

    async def apply(
        self,
        spec: bytes,
        *,
        source: str = "",
        by: str = "",
        consent: bool = False,
        version: int | None = None,
        caller: Principal = ANYBODY,
    ) -> SpecApplied:
        """Put the document in force: its queues, its schedules and its version in one transaction.

        Writes nothing if there is nothing to change. Raises ConsentNeeded if messages may be lost, refused or exposed,
        unless `consent` is given. Raises Conflict if `version` is not the last one.
        """
        checked = await self._checked(spec, caller)
        source, by = _storable("source", source, SPEC_BYTES_MAX), _storable("appliedBy", by, 255)
        await self._scope.quota.check_others()
        await self._scope.compiled_specs.compile(checked)
        for round in range(1, _ROUNDS_MAX + 1):
            planned = await self._plan(checked)
            in_force = planned.in_force
            if in_force is not None and in_force.hash == planned.plan.hash and not planned.plan.changes:
                return _applied(in_force, [])  # also for a retry whose first answer was lost
            if version is not None and planned.plan.version != version:
                raise Conflict(f"version {planned.plan.version} was applied since the plan was made; plan again")
            if planned.plan.dangers and not consent:
                raise ConsentNeeded("messages may be lost, refused or exposed: " + "; ".join(planned.plan.dangers[:20]))
            there = planned.there
            for queue in checked.queues.values():
                if queue.options.cell and not queue.options.cell.startswith(SAME_AS):
                    await self._store.check_cell(self._tenant, queue.options.cell)
            check_quota = self._engine.tenants.check
            await check_quota(self._tenant, "queues", len(checked.queues.keys() - there.queues.keys()))
            await check_quota(self._tenant, "groups", len(_mapped(checked).keys() - _mapped(planned.recorded).keys()))
            await check_quota(self._tenant, "schedules", len(checked.schedules.keys() - there.schedules.keys()))
            try:
                applied = await self._store.specs.apply(
                    self._change(checked, planned, source, by, await self._store.now())
                )
            except (Conflict, OutcomeUnknown):
                # Another apply was faster, or the answer was lost: the current state decides.
                if round == _ROUNDS_MAX or version is not None:
                    raise
                continue
            await self._scope.compiled_specs.reload()
            self._engine.tenants.recount(self._tenant)
            self._engine.on_spec_applied()
            return _applied(applied, planned.plan.changes)
        raise AssertionError("unreachable")

    async def _checked(self, document: bytes, caller: Principal) -> ir.Spec:
        if len(document) > SPEC_BYTES_MAX:
            raise InvalidRequest(f"a spec may have {SPEC_BYTES_MAX} bytes, not {len(document)}")
        try:
            spec = _decode(document)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"this is not the document of a spec: {error}") from None
        check_name("app", spec.app)
        if not caller.allows_all("spec"):
            caller.check("spec", spec.app)
            for scope, queues in (("configure", declared_queues(spec)), ("push", target_queues(spec))):
                for queue in queues:
                    caller.check(scope, queue)
        findings = await self._scope.compiled_specs.alone(check, spec)
        if findings:
            raise InvalidRequest("; ".join(finding.render() for finding in findings[:10]))
        now = await self._store.now()
        for name, schedule in spec.schedules.items():
            try:
                next_tick(options_of(schedule), now)
            except InvalidRequest as error:
                raise InvalidRequest(f"schedules.{name}: {error}") from None
        return spec

    async def _current_state(self) -> CurrentState:
        queues = await self._store.queues.all(self._tenant)
        check_complete(self._store)
        schedules = await self._store.schedules.all(self._tenant)
        return CurrentState(
            {queue.name: queue.options for queue in queues},
            {schedule.name: schedule_of(schedule.options) for schedule in schedules},
        )

    async def _plan(self, spec: ir.Spec) -> _Planned:
        # The last version first: what is read after it is not older, and a later apply is noticed.
        last = await self._store.specs.versions(self._tenant, limit=1)
        in_force, there = await self.all(), await self._current_state()
        version = last[0].version if last else 0
        return await asyncio.to_thread(_planned, spec, in_force, there, version)  # thousands of queues take a while

    def _change(self, spec: ir.Spec, planned: _Planned, source: str, by: str, now: int) -> SpecChange:
        there = planned.there
        recorded = planned.recorded or ir.Spec(app=spec.app)
        version = SpecDetail(
            version=planned.plan.version + 1,
            app=spec.app,
            hash=planned.plan.hash,
            applied_by=by,
            applied_at=Moment(0),
            source=source,
            raw=msgspec.Raw(msgspec.json.encode(spec)),
        )
        return SpecChange(
            tenant=self._tenant,
            spec=version,
            queues=tuple(
                QueueChange(name=name, before=there.queues.get(name), after=queue.options)
                for name, queue in spec.queues.items()
                if there.queues.get(name) != queue.options
            ),
            queues_gone=tuple(name for name in recorded.queues if name not in spec.queues and name in there.queues),
            declared={name: queue.options for name, queue in spec.queues.items()},
            mapped=tuple(_mapped(spec)),
            unmapped=tuple(name for name in _mapped(recorded) if name in spec.queues and not spec.queues[name].map_to),
            schedules=tuple(
                Schedule(tenant=self._tenant, name=name, options=options_of(one), revision=uuid7(), next_at=at)
                for name, one in spec.schedules.items()
                if there.schedules.get(name) != one and (at := next_tick(options_of(one), now))
            ),
            schedules_gone=tuple(name for name in recorded.schedules if name not in spec.schedules),
        )


def _planned(spec: ir.Spec, in_force: Sequence[SpecDetail], there: CurrentState, version: int) -> _Planned:
    """Return what applying a spec would change. `version` is the last that was applied of any app."""
    documents = {one.app: _decode(one.raw) for one in in_force}
    recorded = documents.pop(spec.app, None)
    _check_owners(spec, list(documents.values()))
    actual = _actual(recorded or ir.Spec(app=spec.app), spec, there)
    drift = plan(recorded, _actual(recorded, recorded, there)) if recorded else []
    changes = plan(actual, spec, first=recorded is None)
    planned = SpecPlan(
        app=spec.app,
        hash=hash_of(spec),
        version=version,
        changes=changes,
        drift=drift,
        dangers=[f"{one.kind} {one.name}: {danger}" for one in changes for danger in one.dangers],
    )
    mine = next((one for one in in_force if one.app == spec.app), None)
    return _Planned(plan=planned, in_force=mine, recorded=recorded, there=there)


def hash_of(spec: ir.Spec) -> str:
    """Return the hash of a spec, which does not depend on the order of its parts."""
    return hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()


def _mapped(spec: ir.Spec | None) -> dict[str, ir.QueueSpec]:
    """Return the queues whose messages become commands, by name."""
    return {name: queue for name, queue in spec.queues.items() if queue.map_to} if spec else {}


def _actual(recorded: ir.Spec, wanted: ir.Spec, there: CurrentState) -> ir.Spec:
    """Return the current state of two specs: actual queue options and schedules, and the rest from the last apply."""
    queues: dict[str, ir.QueueSpec] = {}
    for name in [*recorded.queues, *wanted.queues]:
        if (options := there.queues.get(name)) is not None:
            declared = recorded.queues.get(name) or ir.QueueSpec(options=options)
            queues[name] = msgspec.structs.replace(declared, options=options)
    named = [*recorded.schedules, *wanted.schedules]
    schedules = {name: there.schedules[name] for name in named if name in there.schedules}
    return msgspec.structs.replace(recorded, queues=queues, schedules=schedules)


def _check_owners(spec: ir.Spec, others: Sequence[ir.Spec]) -> None:
    """Raise Conflict if another app declares something of the same name."""
    for other in others:
        for kind in ("queues", "commands", "webhooks", "schedules", "pollers"):
            for name in getattr(spec, kind):
                if name in getattr(other, kind):
                    raise Conflict(f"{kind[:-1]} {name!r:.80} is declared by app {other.app!r:.80} already")


def _storable(what: str, text: str, chars_max: int) -> str:
    return check_name(what, text, chars_max=chars_max) if text else ""


def _applied(spec: SpecDetail, changes: list[Change]) -> SpecApplied:
    head = {name: getattr(spec, name) for name in SpecHead.__struct_fields__}
    return SpecApplied(**head, changes=changes)
