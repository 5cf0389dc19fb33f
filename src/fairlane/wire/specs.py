"""Specs on the wire: planned, applied, and those that were."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit, ListQuery

Sign = Literal["+", "~", "-"]
Kind = Literal["queue", "command", "webhook", "schedule", "poller"]


class Detail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One setting."""

    sign: Sign
    setting: str
    before: Any = None
    after: Any = None
    danger: str | None = None
    """What messages may be lost, refused or exposed by it."""


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One queue, command, webhook, schedule or poller."""

    sign: Sign
    kind: Kind
    name: str
    details: list[Detail] = []
    danger: str | None = None

    @property
    def dangers(self) -> list[str]:
        return [danger for danger in (self.danger, *(detail.danger for detail in self.details)) if danger]


class SpecPlanBody(Body):
    spec: msgspec.Raw
    """The document that `fairlane spec compile` prints."""


class SpecApplyBody(SpecPlanBody):
    source: str = ""
    """The text that it was compiled from, to be kept with it."""
    applied_by: str = ""
    consent: bool = False
    """Whether messages may be lost, refused or exposed by it."""
    version: int | None = None
    """That of the plan: the apply is refused if another was applied since."""


class SpecPlan(Answer):
    """The plan of a spec: what applying it would change now."""

    app: str
    hash: str
    version: int
    """The last that was applied, of whatever app; 0 before the first."""
    changes: list[Change]
    """Against what is there, also by other hands."""
    drift: list[Change]
    """What was changed otherwise since the app was last applied."""
    dangers: list[str]
    """By what messages may be lost, refused or exposed: such a plan is applied only with consent."""


class SpecHead(Answer):
    """One version of an app's spec."""

    version: int
    app: str
    hash: str
    applied_by: str
    applied_at: Moment


class SpecApplied(SpecHead):
    changes: list[Change]
    """Empty if nothing had to be done: then the version is the one that was there."""


class SpecDetail(SpecHead):
    source: str
    raw: msgspec.Raw = msgspec.field(name="spec")
    """The document: JSON."""

    @property
    def spec(self) -> dict[str, Any]:
        return msgspec.json.decode(self.raw, type=dict[str, Any])


class SpecListQuery(ListQuery):
    sort: Literal["app", "applied"] = "app"


class SpecList(Answer):
    specs: list[SpecDetail]
    total: int = 0
    """How many apps there are, on all pages."""


class SpecVersionsQuery(Body):
    app: str | None = None
    before: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    """Only versions before this one."""
    limit: Limit = 100


class SpecVersionList(Answer):
    versions: list[SpecHead]
    """Newest first."""


class SpecExportQuery(Body):
    app: str


class SpecExported(Answer):
    app: str
    spec: msgspec.Raw
    """As it is now, with what was changed otherwise."""
