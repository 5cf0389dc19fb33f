"""Specs on the wire: plans, applied versions and their history."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from fairlane.model.moment import Moment
from fairlane.wire.base import Answer, Body, Limit, ListQuery

Sign = Literal["+", "~", "-"]
Kind = Literal["queue", "command", "webhook", "schedule", "poller"]


class Detail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of one setting."""

    sign: Sign
    setting: str
    before: Any = None
    after: Any = None
    danger: str | None = None
    """Description of messages that may be lost, refused or exposed by the change."""


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of one queue, command, webhook, schedule or poller."""

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
    """Document that `fairlane spec compile` prints."""


class SpecApplyBody(SpecPlanBody):
    source: str = ""
    """Source text of the document, stored with the version."""
    applied_by: str = ""
    consent: bool = False
    """True to accept that messages may be lost, refused or exposed."""
    version: int | None = None
    """Version of the plan. The apply is refused if another version was applied since."""


class SpecPlan(Answer):
    """The plan of a spec: the changes of applying it now."""

    app: str
    hash: str
    version: int
    """Last applied version of any app. 0 before the first."""
    changes: list[Change]
    """Changes from the current state, which may have been changed by other means."""
    drift: list[Change]
    """Changes by other means since the app was last applied."""
    dangers: list[str]
    """Changes that may lose, refuse or expose messages. Such a plan needs consent."""


class SpecHead(Answer):
    """One version of an app's spec."""

    version: int
    app: str
    hash: str
    applied_by: str
    applied_at: Moment


class SpecApplied(SpecHead):
    changes: list[Change]
    """Changes that were made. Empty if there were none, and then the version is the existing one."""


class SpecDetail(SpecHead):
    source: str
    raw: msgspec.Raw = msgspec.field(name="spec")
    """Document as JSON."""

    @property
    def spec(self) -> dict[str, Any]:
        return msgspec.json.decode(self.raw, type=dict[str, Any])


class SpecListQuery(ListQuery):
    sort: Literal["app", "applied"] = "app"


class SpecList(Answer):
    specs: list[SpecDetail]
    total: int = 0
    """Number of apps on all pages."""


class SpecVersionsQuery(Body):
    app: str | None = None
    before: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None
    """Largest version, exclusive."""
    limit: Limit = 100


class SpecVersionList(Answer):
    versions: list[SpecHead]
    """Versions, newest first."""


class SpecExportQuery(Body):
    app: str


class SpecExported(Answer):
    app: str
    spec: msgspec.Raw
    """Current state, with changes by other means."""
