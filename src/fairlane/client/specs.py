"""Specs: what a broker holds of them, and what it is to hold."""

from __future__ import annotations

from builtins import list as List  # there is a verb of that name
from typing import Any

import msgspec

from fairlane.client.part import Part
from fairlane.model.names import check_name, name_or_none
from fairlane.wire import specs as wire


class Specs(Part):
    async def plan(self, spec: bytes) -> wire.SpecPlan:
        """What applying a document, as `fairlane spec compile` prints it, would change. Nothing is done."""
        return await self._ask(wire.SpecPlan, "POST", "spec", "plan", body=wire.SpecPlanBody(spec=msgspec.Raw(spec)))

    async def apply(
        self,
        spec: bytes,
        *,
        source: str = "",
        by: str = "",
        consent: bool = False,
        version: int | None = None,
    ) -> wire.SpecApplied:
        """Put a document in force; the same again changes nothing. ConsentNeeded, unless `consent` is given, if
        messages may be lost, refused or exposed by it. `version` is that of a plan: Conflict if another was applied
        since."""
        body = wire.SpecApplyBody(
            spec=msgspec.Raw(spec), source=source, applied_by=by, consent=consent, version=version
        )
        return await self._ask(wire.SpecApplied, "POST", "spec", "apply", body=body)

    async def list(self) -> List[wire.SpecDetail]:
        """Those in force, by app."""
        return (await self._ask(wire.SpecList, "GET", "spec")).specs

    async def versions(
        self, app: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> List[wire.SpecHead]:
        """Everything that was applied, newest first, without texts; with `before` only versions before that one."""
        query = {"limit": limit, "app": name_or_none("app", app), "before": before}
        return (await self._ask(wire.SpecVersionList, "GET", "spec", "versions", query=query)).versions

    async def get(self, version: int) -> wire.SpecDetail:
        """One version, with its text. Raises NotFound."""
        return await self._ask(wire.SpecDetail, "GET", "spec", "versions", str(version))

    async def export(self, app: str) -> dict[str, Any]:
        """The document of an app as its queues are now."""
        answer = await self._ask(wire.SpecExported, "GET", "spec", "export", query={"app": check_name("app", app)})
        return msgspec.json.decode(answer.spec, type=dict[str, Any])
