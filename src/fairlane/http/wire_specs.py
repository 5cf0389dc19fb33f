"""Shapes of specs."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlane.broker.specs import Applied, SpecPlan
from fairlane.model.moment import timestamp
from fairlane.model.spec_version import SpecVersion
from fairlane.spec.plan import Change
from fairlane.wire.base import Limit


class Wire(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """camelCase on the wire."""


class SpecPlanBody(Wire, rename="camel", kw_only=True):
    spec: msgspec.Raw
    """The document that `fairlane spec compile` prints."""


class SpecApplyBody(Wire, rename="camel", kw_only=True):
    spec: msgspec.Raw
    source: str = ""
    """The text that it was compiled from, to be kept with it."""
    applied_by: str = ""
    consent: bool = False
    """Whether messages may be lost or refused by it."""
    version: int | None = None
    """That of the plan: the apply is refused if another was applied since."""


class SpecPlanned(Wire, rename="camel", kw_only=True):
    app: str
    hash: str
    version: int
    """The last that was applied, of whatever app; 0 before the first."""
    changes: list[Change]
    drift: list[Change]
    """What was changed otherwise since the app was last applied."""
    dangers: list[str]
    """By what messages may be lost or refused: such a plan is applied only with consent."""


class SpecHead(Wire, rename="camel", kw_only=True):
    version: int
    app: str
    hash: str
    applied_by: str
    applied_at: str


class SpecApplied(SpecHead, rename="camel", kw_only=True):
    changes: list[Change]
    """Empty if nothing had to be done."""


class SpecDetail(SpecHead, rename="camel", kw_only=True):
    source: str
    spec: msgspec.Raw


class SpecList(Wire, rename="camel", kw_only=True):
    specs: list[SpecDetail]
    """By app."""


class SpecVersionsQuery(Wire, rename="camel", kw_only=True):
    app: str | None = None
    before: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    """Only versions before this one."""
    limit: Limit = 100


class SpecVersionList(Wire, rename="camel", kw_only=True):
    versions: list[SpecHead]
    """Newest first."""


class SpecExportQuery(Wire, rename="camel", kw_only=True):
    app: str


class SpecExported(Wire, rename="camel", kw_only=True):
    app: str
    spec: msgspec.Raw
    """As it is now, with what was changed otherwise."""


def plan_out(plan: SpecPlan) -> SpecPlanned:
    return SpecPlanned(
        app=plan.app,
        hash=plan.hash,
        version=plan.version,
        changes=plan.changes,
        drift=plan.drift,
        dangers=plan.dangers,
    )


def head_out(spec: SpecVersion) -> SpecHead:
    return SpecHead(
        version=spec.version,
        app=spec.app,
        hash=spec.hash,
        applied_by=spec.applied_by,
        applied_at=timestamp(spec.applied_at),
    )


def applied_out(applied: Applied) -> SpecApplied:
    return SpecApplied(**msgspec.structs.asdict(head_out(applied.spec)), changes=applied.changes)


def detail_out(spec: SpecVersion) -> SpecDetail:
    document = msgspec.Raw(spec.document.encode())
    return SpecDetail(**msgspec.structs.asdict(head_out(spec)), source=spec.source, spec=document)
